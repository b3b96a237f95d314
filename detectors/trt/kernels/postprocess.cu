// A model's raw output to boxes in source pixels, on the device: collect what reaches the threshold, sort, class-wise
// NMS, and write only the kept boxes. The layouts and the order of equals are those of detectors/heads.py; a test
// compiles this very file for the CPU (with one thread a block) and compares.

struct Candidate {                 // numpy: detectors.trt.kernels.CANDIDATE
    float x1, y1, x2, y2;          // pixels of the model's input
    float score;
    int class_id;
};

struct Placement {                 // numpy: detectors.trt.kernels.PLACEMENT
    float left, top;               // of the picture in the input
    float scale_x, scale_y;        // input pixels to source pixels
    float width, height;           // of the source picture
};

struct Limits {                    // numpy: detectors.trt.kernels.LIMITS
    float confidence, iou;
    int multi_label;               // a box for each class that reaches the threshold, or for the best alone
    int max_detections;
    int suppress;                  // 0: the model has done NMS itself
    int most;                      // strongest candidates that NMS looks at
    int capacity;                  // candidates there is room for, a power of two
    int reserved;
};

struct Output {                    // numpy: detectors.trt.kernels.OUTPUT
    const float* values;           // the model's output
    Candidate* candidates;         // (batch, capacity)
    unsigned long long* keys;      // (batch, capacity)
    int* slots;                    // (batch, capacity)
    unsigned char* dead;           // (batch, capacity)
    int* counts;                   // (batch): how many there were, even beyond capacity
    int rows, classes;             // of the output
    int width, height;             // of the model's input
};

// Strongest first, and among equals the one that came first in the output.
__device__ inline unsigned long long key_of(float score, unsigned int order) {
    return ((unsigned long long)__float_as_uint(score) << 32) | (0xffffffffu - order);
}

__device__ inline void keep(const Output& o, const Limits& limits, int row, int class_id, float score, float cx, float cy,
                            float w, float h) {
    const int batch = blockIdx.y;
    const int slot = atomicAdd(o.counts + batch, 1);
    if (slot >= limits.capacity) return;
    const long long at = (long long)batch * limits.capacity + slot;
    o.candidates[at] = {cx - w * 0.5f, cy - h * 0.5f, cx + w * 0.5f, cy + h * 0.5f, score, class_id};
    o.keys[at] = key_of(score, (unsigned int)row * (unsigned int)o.classes + (unsigned int)class_id);
}

// The classes of one row that reach the threshold; `step` floats from class to class.
__device__ inline void classes_of(const Output& o, const Limits& limits, int row, const float* scores, long long step,
                                  float objectness, float cx, float cy, float w, float h) {
    int best = 0;
    float most = scores[0] * objectness;
    for (int c = 0; c < o.classes; ++c) {
        const float score = scores[c * step] * objectness;
        if (limits.multi_label && score >= limits.confidence) keep(o, limits, row, c, score, cx, cy, w, h);
        if (score > most) {
            most = score;
            best = c;
        }
    }
    if (!limits.multi_label && most >= limits.confidence) keep(o, limits, row, best, most, cx, cy, w, h);
}

// Grid: x over rows, y over the batch.
extern "C" __global__ void collect_yolov5(Output o, Limits limits) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= o.rows) return;
    const float* r = o.values + ((long long)blockIdx.y * o.rows + row) * (5 + o.classes);
    if (r[4] >= limits.confidence) classes_of(o, limits, row, r + 5, 1, r[4], r[0], r[1], r[2], r[3]);
}

extern "C" __global__ void collect_yolov8(Output o, Limits limits) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= o.rows) return;
    const long long n = o.rows;
    const float* r = o.values + (long long)blockIdx.y * n * (4 + o.classes) + row;
    classes_of(o, limits, row, r + 4 * n, n, 1.0f, r[0], r[n], r[2 * n], r[3 * n]);
}

extern "C" __global__ void collect_yolox(Output o, Limits limits) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= o.rows) return;
    const float* r = o.values + ((long long)blockIdx.y * o.rows + row) * (5 + o.classes);
    if (r[4] < limits.confidence) return;
    int stride = 8, first = 0;
    while (row - first >= (o.width / stride) * (o.height / stride)) {
        first += (o.width / stride) * (o.height / stride);
        stride *= 2;
    }
    const int across = o.width / stride, x = (row - first) % across, y = (row - first) / across;
    classes_of(o, limits, row, r + 5, 1, r[4], (r[0] + x) * stride, (r[1] + y) * stride, expf(r[2]) * stride,
               expf(r[3]) * stride);
}

extern "C" __global__ void collect_end2end(Output o, Limits limits) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= o.rows) return;
    const float* r = o.values + ((long long)blockIdx.y * o.rows + row) * 6;
    if (r[4] < limits.confidence) return;
    const int batch = blockIdx.y;
    const int slot = atomicAdd(o.counts + batch, 1);
    if (slot >= limits.capacity) return;
    const long long at = (long long)batch * limits.capacity + slot;
    o.candidates[at] = {r[0], r[1], r[2], r[3], r[4], (int)r[5]};
    o.keys[at] = key_of(r[4], (unsigned int)row);
}

// Bitonic sort of n keys (a power of two), strongest first, by one block.
__device__ inline void sort(unsigned long long* keys, int* slots, int n) {
    for (int size = 2; size <= n; size *= 2) {
        for (int reach = size / 2; reach > 0; reach /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n; i += blockDim.x) {
                const int j = i ^ reach;
                const bool falling = (i & size) == 0;
                if (j > i && (keys[i] < keys[j]) == falling) {
                    const unsigned long long key = keys[i];
                    const int slot = slots[i];
                    keys[i] = keys[j];
                    slots[i] = slots[j];
                    keys[j] = key;
                    slots[j] = slot;
                }
            }
        }
    }
    __syncthreads();
}

// The same arithmetic as heads.nms: multiplied out, so that boxes of no area divide nothing by nothing.
__device__ inline bool overlaps(const Candidate& a, const Candidate& b, float iou) {
    const float w = fmaxf(fminf(a.x2, b.x2) - fmaxf(a.x1, b.x1), 0.0f);
    const float h = fmaxf(fminf(a.y2, b.y2) - fmaxf(a.y1, b.y1), 0.0f);
    const float inter = w * h;
    const float areas = (a.x2 - a.x1) * (a.y2 - a.y1) + (b.x2 - b.x1) * (b.y2 - b.y1);
    return a.class_id == b.class_id && inter > iou * (areas - inter);
}

__device__ inline float within(float value, float shift, float scale, float limit) {
    return fminf(fmaxf((value - shift) * scale, 0.0f), limit);
}

// One block a picture. boxes: (batch, max_detections, 6) of x1, y1, x2, y2, confidence, class in source pixels;
// kept: (batch). Both may lie in mapped host memory: each kept box is written once, and nothing is read.
extern "C" __global__ void select_boxes(Output o, Limits limits, const Placement* placements, float* boxes, int* kept) {
    const int batch = blockIdx.x;
    const long long base = (long long)batch * limits.capacity;
    const Candidate* candidates = o.candidates + base;
    unsigned long long* keys = o.keys + base;
    int* slots = o.slots + base;
    unsigned char* dead = o.dead + base;
    const int count = o.counts[batch] < limits.capacity ? o.counts[batch] : limits.capacity;
    int n = 1;
    while (n < count) n *= 2;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        slots[i] = i;
        dead[i] = 0;
        if (i >= count) keys[i] = 0;
    }
    sort(keys, slots, n);
    const int most = count < limits.most ? count : limits.most;
    const Placement place = placements[batch];
    int found = 0;
    for (int i = 0; i < most && found < limits.max_detections; ++i) {
        __syncthreads();  // what the last round suppressed is seen by all
        if (dead[i]) continue;
        const Candidate best = candidates[slots[i]];
        if (threadIdx.x == 0) {
            float* box = boxes + ((long long)batch * limits.max_detections + found) * 6;
            box[0] = within(best.x1, place.left, place.scale_x, place.width);
            box[1] = within(best.y1, place.top, place.scale_y, place.height);
            box[2] = within(best.x2, place.left, place.scale_x, place.width);
            box[3] = within(best.y2, place.top, place.scale_y, place.height);
            box[4] = best.score;
            box[5] = (float)best.class_id;
        }
        ++found;
        if (!limits.suppress) continue;
        for (int j = i + 1 + threadIdx.x; j < most; j += blockDim.x)
            if (!dead[j] && overlaps(best, candidates[slots[j]], limits.iou)) dead[j] = 1;
    }
    if (threadIdx.x == 0) kept[batch] = found;
}
