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
    int most;                      // strongest candidates that NMS looks at, at most capacity
    int capacity;                  // candidates there is room for, a power of two
    int labels;                    // that the model has: class ids from 0
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

// Strongest first, and among equals the one that came first in the output. Adding 0 makes one zero of the two.
__device__ inline unsigned long long key_of(float score, unsigned int order) {
    return ((unsigned long long)__float_as_uint(score + 0.0f) << 32) | (0xffffffffu - order);
}

__device__ inline Candidate centred(float cx, float cy, float w, float h, float score, int class_id) {
    return {cx - w * 0.5f, cy - h * 0.5f, cx + w * 0.5f, cy + h * 0.5f, score, class_id};
}

// The classes of one row that reach the threshold; `step` floats from class to class. A row in which a score is not a
// number has none. `take` gets the class and its score.
template <typename Take>
__device__ inline void classes_of(const Output& o, const Limits& limits, const float* scores, long long step,
                                  float objectness, Take take) {
    int best = 0;
    float most = scores[0] * objectness;
    for (int c = 0; c < o.classes; ++c) {
        const float score = scores[c * step] * objectness;
        if (score != score) return;
        if (score > most) {
            most = score;
            best = c;
        }
    }
    if (!(most >= limits.confidence)) return;
    if (!limits.multi_label) {
        take(best, most);
        return;
    }
    for (int c = 0; c < o.classes; ++c) {
        const float score = scores[c * step] * objectness;
        if (score >= limits.confidence) take(c, score);
    }
}

// One head each: the candidates of one row of a picture's output. `take` gets a candidate and its place in the output.
struct Yolov5 {
    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const float* r = o.values + ((long long)batch * o.rows + row) * (5 + o.classes);
        if (!(r[4] >= limits.confidence)) return;
        classes_of(o, limits, r + 5, 1, r[4], [&](int c, float score) {
            take(centred(r[0], r[1], r[2], r[3], score, c), (unsigned int)row * (unsigned int)o.classes + (unsigned int)c);
        });
    }
};

struct Yolov8 {
    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const long long n = o.rows;
        const float* r = o.values + (long long)batch * n * (4 + o.classes) + row;
        classes_of(o, limits, r + 4 * n, n, 1.0f, [&](int c, float score) {
            take(centred(r[0], r[n], r[2 * n], r[3 * n], score, c),
                 (unsigned int)row * (unsigned int)o.classes + (unsigned int)c);
        });
    }
};

struct Yolox {
    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const float* r = o.values + ((long long)batch * o.rows + row) * (5 + o.classes);
        if (!(r[4] >= limits.confidence)) return;
        int stride = 8, first = 0;
        while (row - first >= (o.width / stride) * (o.height / stride)) {
            first += (o.width / stride) * (o.height / stride);
            stride *= 2;
        }
        const int across = o.width / stride, x = (row - first) % across, y = (row - first) / across;
        classes_of(o, limits, r + 5, 1, r[4], [&](int c, float score) {
            take(centred((r[0] + x) * stride, (r[1] + y) * stride, expf(r[2]) * stride, expf(r[3]) * stride, score, c),
                 (unsigned int)row * (unsigned int)o.classes + (unsigned int)c);
        });
    }
};

struct End2end {
    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const float* r = o.values + ((long long)batch * o.rows + row) * 6;
        if (!(r[4] >= limits.confidence)) return;
        const int class_id = fabsf(r[5]) < 16777216.0f ? (int)r[5] : -1;  // as far as float counts
        take({r[0], r[1], r[2], r[3], r[4], class_id}, (unsigned int)row);
    }
};

// Beyond capacity candidates are counted and not kept: `keep_strongest` begins again.
__device__ inline void keep(const Output& o, const Limits& limits, int batch, const Candidate& found, unsigned int order) {
    const int slot = atomicAdd(o.counts + batch, 1);
    if (slot >= limits.capacity) return;
    const long long at = (long long)batch * limits.capacity + slot;
    o.candidates[at] = found;
    o.keys[at] = key_of(found.score, order);
}

template <typename Head>
__device__ inline void collect(const Output& o, const Limits& limits) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x, batch = blockIdx.y;
    if (row >= o.rows) return;
    Head::row(o, limits, batch, row,
              [&](const Candidate& found, unsigned int order) { keep(o, limits, batch, found, order); });
}

// By one block, where there are more candidates than capacity: the `most` strongest instead of those that came first.
// Which key is the last of them is found byte by byte, the highest first, by counting.
template <typename Head>
__device__ inline void keep_strongest(const Output& o, const Limits& limits, int batch) {
    __shared__ int histogram[256];
    __shared__ unsigned long long last;  // as far as it is known
    __shared__ int left;                 // of the candidates that begin like it, so many are among the strongest
    if (threadIdx.x == 0) {
        last = 0;
        left = limits.most;
    }
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += blockDim.x) histogram[i] = 0;
        __syncthreads();
        for (int row = threadIdx.x; row < o.rows; row += blockDim.x)
            Head::row(o, limits, batch, row, [&](const Candidate& found, unsigned int order) {
                const unsigned long long key = key_of(found.score, order);
                if (shift == 56 || key >> (shift + 8) == last >> (shift + 8))
                    atomicAdd(histogram + (int)(key >> shift & 255), 1);
            });
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255;
            for (; histogram[digit] < left; --digit) left -= histogram[digit];
            last |= (unsigned long long)digit << shift;
            o.counts[batch] = 0;
        }
        __syncthreads();
    }
    for (int row = threadIdx.x; row < o.rows; row += blockDim.x)
        Head::row(o, limits, batch, row, [&](const Candidate& found, unsigned int order) {
            if (key_of(found.score, order) >= last) keep(o, limits, batch, found, order);
        });
    __syncthreads();
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

// What is not a number stays so, and is left out later; fminf would make a corner of it.
__device__ inline float within(float value, float shift, float scale, float limit) {
    return value != value ? value : fminf(fmaxf((value - shift) * scale, 0.0f), limit);
}

// Where a batch's boxes go: mapped host memory, in which each is written once, and nothing is read.
struct Results {                   // numpy: detectors.trt.kernels.RESULTS
    float* boxes;                  // (batch, max_detections, 6) of x1, y1, x2, y2, confidence, class in source pixels
    int* kept;                     // (batch)
    int* left_out;                 // (batch): candidates that were not looked at, because there were too many
    int* implausible;              // (batch): boxes that no picture has, which the host leaves out
};

// The same rules as detectors.detections.plausible. What is not a number compares as false.
__device__ inline bool is_plausible(float x1, float y1, float x2, float y2, float score, int class_id, int labels) {
    const float width = x2 - x1, height = y2 - y1;
    return width >= 0.0f && height >= 0.0f && width + height <= 3.402823466e38f && score >= 0.0f && score <= 1.0f &&
           class_id >= 0 && class_id < labels;
}

// One block a picture.
template <typename Head>
__device__ inline void select(const Output& o, const Limits& limits, const Placement* placements, const Results& results) {
    const int batch = blockIdx.x;
    const int all = o.counts[batch];
    __syncthreads();
    if (all > limits.capacity) keep_strongest<Head>(o, limits, batch);
    const long long base = (long long)batch * limits.capacity;
    const Candidate* candidates = o.candidates + base;
    unsigned long long* keys = o.keys + base;
    int* slots = o.slots + base;
    unsigned char* dead = o.dead + base;
    const int count = o.counts[batch];
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
    int found = 0, implausible = 0;
    for (int i = 0; i < most && found < limits.max_detections; ++i) {
        __syncthreads();  // what the last round suppressed is seen by all
        if (dead[i]) continue;
        const Candidate best = candidates[slots[i]];
        if (threadIdx.x == 0) {
            float* box = results.boxes + ((long long)batch * limits.max_detections + found) * 6;
            const float x1 = within(best.x1, place.left, place.scale_x, place.width);
            const float y1 = within(best.y1, place.top, place.scale_y, place.height);
            const float x2 = within(best.x2, place.left, place.scale_x, place.width);
            const float y2 = within(best.y2, place.top, place.scale_y, place.height);
            implausible += !is_plausible(x1, y1, x2, y2, best.score, best.class_id, limits.labels);
            box[0] = x1;
            box[1] = y1;
            box[2] = x2;
            box[3] = y2;
            box[4] = best.score;
            box[5] = (float)best.class_id;
        }
        ++found;
        if (!limits.suppress) continue;
        for (int j = i + 1 + threadIdx.x; j < most; j += blockDim.x)
            if (!dead[j] && overlaps(best, candidates[slots[j]], limits.iou)) dead[j] = 1;
    }
    if (threadIdx.x == 0) {
        results.kept[batch] = found;
        results.left_out[batch] = all > limits.most ? all - limits.most : 0;
        results.implausible[batch] = implausible;
    }
}

// Collect: grid x over rows, y over the batch. Select: grid x over the batch.
#define LOOKOUT_HEAD(NAME, HEAD)                                                                                         \
    extern "C" __global__ void collect_##NAME(Output o, Limits limits) { collect<HEAD>(o, limits); }                     \
    extern "C" __global__ void select_##NAME(Output o, Limits limits, const Placement* placements, Results results) {    \
        select<HEAD>(o, limits, placements, results);                                                                    \
    }

LOOKOUT_HEAD(yolov5, Yolov5)
LOOKOUT_HEAD(yolov8, Yolov8)
LOOKOUT_HEAD(yolox, Yolox)
LOOKOUT_HEAD(end2end, End2end)
