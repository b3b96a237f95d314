// The rows of a model's raw output that are kept, on the device: collect what reaches the threshold, sort, class-wise NMS,
// and write only what is kept. Each head is a struct that says what differs; postprocess.cu, queries.cu and tasks.cu have
// them. The layouts and the order of equals are those of detectors/heads; a test compiles these very files for the CPU
// (with few threads a block) and compares.
#ifndef LOOKOUT_ROWS
#define LOOKOUT_ROWS

struct Candidate {                 // numpy: detectors.trt.kernels.CANDIDATE
    float x1, y1, x2, y2;          // pixels of the model's input; of a box at an angle centre, width and height
    float score;                   // as the output has it
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

struct Gaussian {                  // variances of x and y, and their covariance
    double a, b, c;
};

struct Output {                    // numpy: detectors.trt.kernels.OUTPUT
    const float* values;           // the model's output with scores
    const float* boxes;            // queries: the output with boxes
    const void* labels;            // queries: the output with class ids
    const float* protos;           // (batch, extras, proto_height, proto_width): the output with prototypes of masks
    Candidate* candidates;         // (batch, capacity)
    unsigned long long* keys;      // (batch, capacity)
    int* slots;                    // (batch, capacity)
    unsigned char* dead;           // (batch, capacity)
    int* counts;                   // (batch): how many there were, even beyond capacity; and then, how many are kept
    Gaussian* shapes;              // (batch, most), of boxes at an angle
    float* kept;                   // (batch, max_detections, 4 + extras), of masks: kept boxes and their coefficients
    int rows, classes;             // of the output; one class where a row names its own
    int extras;                    // values of a row beside its box and scores
    int values_a_point;            // 2 or 3
    int label_bytes;               // of an integer class id: 4 or 8; 0 for a float
    int width, height;             // of the model's input
    int proto_width, proto_height;
};

// Strongest first, and among equals the one that came first in the output.
template <typename Head>
__device__ inline unsigned long long key_of(float score, unsigned int order) {
    return ((unsigned long long)Head::rank(score) << 32) | (0xffffffffu - order);
}

__device__ inline Candidate centred(float cx, float cy, float w, float h, float score, int class_id) {
    return {cx - w * 0.5f, cy - h * 0.5f, cx + w * 0.5f, cy + h * 0.5f, score, class_id};
}

// A class id among floats, which count as far as this; -1 for what is none.
__device__ inline int whole(float class_id) { return fabsf(class_id) < 16777216.0f ? (int)class_id : -1; }

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

// Beyond capacity candidates are counted and not kept: `keep_strongest` begins again.
template <typename Head>
__device__ inline void keep(const Output& o, const Limits& limits, int batch, const Candidate& found, unsigned int order) {
    const int slot = atomicAdd(o.counts + batch, 1);
    if (slot >= limits.capacity) return;
    const long long at = (long long)batch * limits.capacity + slot;
    o.candidates[at] = found;
    o.keys[at] = key_of<Head>(found.score, order);
}

template <typename Head>
__device__ inline void collect(const Output& o, const Limits& limits) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x, batch = blockIdx.y;
    if (row >= o.rows) return;
    Head::row(o, limits, batch, row,
              [&](const Candidate& found, unsigned int order) { keep<Head>(o, limits, batch, found, order); });
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
                const unsigned long long key = key_of<Head>(found.score, order);
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
            if (key_of<Head>(found.score, order) >= last) keep<Head>(o, limits, batch, found, order);
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

// The same arithmetic as heads.candidates: multiplied out, so that boxes of no area divide nothing by nothing.
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
    float* extras;                 // (batch, max_detections, n): key points, or boxes at an angle; n by the head
    unsigned char* full;           // (batch, max_detections): whether a box has a mask at all
    unsigned char* bits;           // (batch, max_detections, height, bytes): masks
};

// The same rules as detectors.detections.plausible. What is not a number compares as false.
__device__ inline bool is_plausible(float x1, float y1, float x2, float y2, float score, int class_id, int labels) {
    const float width = x2 - x1, height = y2 - y1;
    return width >= 0.0f && height >= 0.0f && width + height <= 3.402823466e38f && score >= 0.0f && score <= 1.0f &&
           class_id >= 0 && class_id < labels;
}

// A row of a picture's output that is kept.
struct Kept {
    int batch;
    int number;                    // among the kept ones
    int row;                       // in the output
    Candidate box;
};

// A kept box for the host; whether no picture has it. By one thread.
__device__ inline bool write_box(const Limits& limits, const Results& results, const Kept& kept, const float (&at)[4],
                                 float score) {
    float* box = results.boxes + ((long long)kept.batch * limits.max_detections + kept.number) * 6;
    for (int i = 0; i < 4; ++i) box[i] = at[i];
    box[4] = score;
    box[5] = (float)kept.box.class_id;
    return !is_plausible(at[0], at[1], at[2], at[3], score, kept.box.class_id, limits.labels);
}

// An upright box. By one thread.
__device__ inline bool write_upright(const Limits& limits, const Placement& place, const Results& results,
                                     const Kept& kept, float score) {
    const float at[4] = {within(kept.box.x1, place.left, place.scale_x, place.width),
                         within(kept.box.y1, place.top, place.scale_y, place.height),
                         within(kept.box.x2, place.left, place.scale_x, place.width),
                         within(kept.box.y2, place.top, place.scale_y, place.height)};
    return write_box(limits, results, kept, at, score);
}

// What heads have in common; one that differs hides it.
struct Rows {
    static constexpr bool rotated = false;  // boxes at an angle, which `suppress` handles

    // Floats that are not negative have the order of their bits. Adding 0 makes one zero of the two.
    static __device__ inline unsigned int rank(float score) { return __float_as_uint(score + 0.0f); }

    // Candidates that were not looked at, of all.
    static __device__ inline int left_out(const Limits& limits, int all) {
        return all > limits.most ? all - limits.most : 0;
    }

    // NMS of the sorted candidates before any is kept.
    static __device__ inline void suppress(const Output&, const Limits&, int, int) {}

    // Writes a kept row; whether no picture has its box, by the first thread.
    static __device__ inline bool write(const Output&, const Limits& limits, const Placement& place,
                                        const Results& results, const Kept& kept) {
        return threadIdx.x == 0 && write_upright(limits, place, results, kept, kept.box.score);
    }
};

// The row of a candidate, by its key. Where a row names its class, `classes` is 1.
__device__ inline int row_of(const Output& o, unsigned long long key) {
    return (int)((0xffffffffu - (unsigned int)key) / (unsigned int)o.classes);
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
    Head::suppress(o, limits, batch, most);
    const Placement place = placements[batch];
    int found = 0, implausible = 0;
    for (int i = 0; i < most && found < limits.max_detections; ++i) {
        __syncthreads();  // what the last round suppressed is seen by all
        if (dead[i]) continue;
        const Candidate best = candidates[slots[i]];
        implausible += Head::write(o, limits, place, results, {batch, found, row_of(o, keys[i]), best});
        ++found;
        if (Head::rotated || !limits.suppress) continue;
        for (int j = i + 1 + threadIdx.x; j < most; j += blockDim.x)
            if (!dead[j] && overlaps(best, candidates[slots[j]], limits.iou)) dead[j] = 1;
    }
    if (threadIdx.x == 0) {
        o.counts[batch] = found;
        results.kept[batch] = found;
        results.left_out[batch] = Head::left_out(limits, all);
        results.implausible[batch] = implausible;
    }
}

// Collect: grid x over rows, y over the batch. Select: grid x over the batch.
#define LOOKOUT_HEAD(NAME, HEAD)                                                                                         \
    extern "C" __global__ void collect_##NAME(Output o, Limits limits) { collect<HEAD>(o, limits); }                     \
    extern "C" __global__ void select_##NAME(Output o, Limits limits, const Placement* placements, Results results) {    \
        select<HEAD>(o, limits, placements, results);                                                                    \
    }

#endif
