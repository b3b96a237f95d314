// The heads of YOLO that keep more for a box: key points, an angle, or a mask. See rows.cuh.
#include "yolo.cuh"

// Upright boxes with key points, or with coefficients of masks: which of both, `o` says.
template <typename Layout>
struct Extended : Layout {
    static __device__ inline bool write(const Output& o, const Limits& limits, const Placement& place,
                                        const Results& results, const Kept& kept) {
        const long long at = (long long)kept.batch * limits.max_detections + kept.number;
        if (o.values_a_point) write_points(o, place, results, kept, at);
        if (o.kept) keep_coefficients(o, kept, o.kept + at * (4 + o.extras));
        return Layout::write(o, limits, place, results, kept);
    }

    // In source pixels: x, y and confidence, which is 1 where the model gives none.
    static __device__ inline void write_points(const Output& o, const Placement& place, const Results& results,
                                               const Kept& kept, long long at) {
        const int values = o.values_a_point, points = o.extras / values;
        float* out = results.extras + at * points * 3;
        for (int i = threadIdx.x; i < points; i += blockDim.x) {
            const auto value = [&](int number) { return Layout::extra(o, kept.batch, kept.row, i * values + number); };
            out[3 * i] = within(value(0), place.left, place.scale_x, place.width);
            out[3 * i + 1] = within(value(1), place.top, place.scale_y, place.height);
            out[3 * i + 2] = values == 3 ? value(2) : 1.0f;
        }
    }

    // The box in input pixels and the coefficients stay on the device, for `masks`.
    static __device__ inline void keep_coefficients(const Output& o, const Kept& kept, float* out) {
        for (int i = threadIdx.x; i < o.extras; i += blockDim.x) out[4 + i] = Layout::extra(o, kept.batch, kept.row, i);
        if (threadIdx.x == 0) {
            out[0] = kept.box.x1;
            out[1] = kept.box.y1;
            out[2] = kept.box.x2;
            out[3] = kept.box.y2;
        }
    }
};

// --- boxes at an angle ----------------------------------------------------------------------------------------------
// In double precision, as in detectors/heads/candidates.py: sine, logarithm and so on differ from library to library in the last
// bit of a float, and overlaps of thin boxes differ by much more.

__device__ inline Gaussian gaussian(const Candidate& box, double angle) {
    const double a = (double)box.x2 * box.x2 / 12.0, b = (double)box.y2 * box.y2 / 12.0;
    const double c = cos(angle), s = sin(angle);
    return {a * c * c + b * s * s, a * s * s + b * c * c, (a - b) * c * s};
}

// What is not a number stays so, as in numpy.
__device__ inline double at_least(double value, double low) { return value < low ? low : value; }

// detectors.heads.candidates.probabilistic_iou
__device__ inline float probabilistic_iou(const Candidate& one, const Gaussian& p, const Candidate& other,
                                          const Gaussian& q) {
    const double eps = 1e-7, x = (double)one.x1 - other.x1, y = (double)one.y1 - other.y1;
    const double a = p.a + q.a, b = p.b + q.b, c = p.c + q.c;
    const double determinant = a * b - c * c;
    const double near = (a * (y * y) + b * (x * x)) / (determinant + eps) * 0.25;
    const double turned = c * -x * y / (determinant + eps) * 0.5;
    const double own = at_least(p.a * p.b - p.c * p.c, 0.0) * at_least(q.a * q.b - q.c * q.c, 0.0);
    const double shape = log(determinant / (4.0 * sqrt(own) + eps) + eps) * 0.5;
    const double between = -at_least(-at_least(near + turned + shape, eps), -100.0);
    return (float)(1.0 - sqrt(1.0 - exp(-between) + eps));
}

// Whether two boxes are too far from each other to overlap by `iou`, from few operations: most pairs are. The distance is
// at least a quarter of the squared one of the centres by the sum of all variances. `reach` has a margin for rounding.
// Boxes without area are not told.
__device__ inline bool far_apart(const Candidate& one, const Candidate& other, float reach) {
    const float x = one.x1 - other.x1, y = one.y1 - other.y1;
    const float sides = one.x2 * one.x2 + one.y2 * one.y2 + other.x2 * other.x2 + other.y2 * other.y2;
    const bool large = fabsf(one.x2 * one.y2) > 1.0f || fabsf(other.x2 * other.y2) > 1.0f;
    return large && x * x + y * y > reach * sides;
}

__device__ inline float reach_of(float iou) {
    const double apart = 1.0 - (double)iou, eps = 1e-7;
    return (float)((0.01 - log(1.0 - apart * apart + eps)) * 4.04 / 12.0);
}

template <typename Layout>
struct Turned : Layout {
    static constexpr bool rotated = true;

    static __device__ inline float angle(const Output& o, int batch, int row) { return Layout::extra(o, batch, row, 0); }

    // A box is removed by each stronger one that it overlaps, even by one that is removed itself.
    static __device__ inline void suppress(const Output& o, const Limits& limits, int batch, int most) {
        if (!limits.suppress) return;
        const long long base = (long long)batch * limits.capacity;
        const Candidate* candidates = o.candidates + base;
        const int* slots = o.slots + base;
        Gaussian* shapes = o.shapes + (long long)batch * limits.most;
        for (int i = threadIdx.x; i < most; i += blockDim.x)
            shapes[i] = gaussian(candidates[slots[i]], angle(o, batch, row_of(o, o.keys[base + i])));
        __syncthreads();  // all shapes are there
        const float reach = reach_of(limits.iou);
        for (int j = threadIdx.x; j < most; j += blockDim.x) {
            const Candidate own = candidates[slots[j]];
            for (int i = 0; i < j; ++i) {
                const Candidate stronger = candidates[slots[i]];
                if (stronger.class_id != own.class_id || far_apart(stronger, own, reach)) continue;
                if (probabilistic_iou(stronger, shapes[i], own, shapes[j]) > limits.iou) {
                    o.dead[base + j] = 1;
                    break;
                }
            }
        }
    }

    // The hull in the picture, and centre, size and angle in source pixels and radians. By one thread.
    static __device__ inline bool write(const Output& o, const Limits& limits, const Placement& place,
                                        const Results& results, const Kept& kept) {
        if (threadIdx.x != 0) return false;
        const float radians = angle(o, kept.batch, kept.row);
        const float x = (kept.box.x1 - place.left) * place.scale_x, y = (kept.box.y1 - place.top) * place.scale_y;
        const float w = fabsf(kept.box.x2 * place.scale_x), h = fabsf(kept.box.y2 * place.scale_y);
        write_regular(results.extras + ((long long)kept.batch * limits.max_detections + kept.number) * 5, x, y, w, h, radians);
        const float c = (float)fabs(cos((double)radians)), s = (float)fabs(sin((double)radians));
        const float across = (w * c + h * s) * 0.5f, down = (w * s + h * c) * 0.5f;
        const float at[4] = {within(x - across, 0.0f, 1.0f, place.width), within(y - down, 0.0f, 1.0f, place.height),
                             within(x + across, 0.0f, 1.0f, place.width), within(y + down, 0.0f, 1.0f, place.height)};
        return write_box(limits, results, kept, at, kept.box.score);
    }

    // detectors.heads.rows.regular
    static __device__ inline void write_regular(float* out, float x, float y, float w, float h, float radians) {
        const float half_turn = 3.14159265f, quarter = 1.57079633f;
        const bool swap = modulo(radians, half_turn) >= quarter;
        out[0] = x;
        out[1] = y;
        out[2] = swap ? h : w;
        out[3] = swap ? w : h;
        out[4] = modulo(modulo(radians, half_turn), quarter);
    }

    // With the sign of the divisor, as in Python.
    static __device__ inline float modulo(float value, float by) {
        const float rest = fmodf(value, by);
        return rest < 0.0f ? rest + by : rest;
    }
};

// --- masks ------------------------------------------------------------------------------------------------------------

// One instance: prototypes of a picture, and the coefficients of a row.
struct Instance {
    const float *protos, *coefficients;
    int count, width, height;      // prototypes, and their size

    __device__ inline float at(int x, int y) const {
        const long long plane = (long long)width * height;
        const float* proto = protos + (long long)y * width + x;
        float sum = 0.0f;
        for (int i = 0; i < count; ++i) sum += coefficients[i] * proto[i * plane];
        return sum;
    }
};

// The two cells around a pixel of the input, and the weight of the second: detectors.heads.masks._between
struct Between {
    int low, high;
    float weight;
};

__device__ inline Between between(int pixel, float ratio, int cells) {
    const float centre = fmaxf(((float)pixel + 0.5f) * ratio - 0.5f, 0.0f);
    const int low = (int)centre;
    return {low, low + 1 < cells ? low + 1 : cells - 1, centre - (float)low};
}

// Pixels from the first to before the last whose corner lies in a box; where the box is no number all of them.
struct Span {
    int first, last;
};

__device__ inline Span span(float from, float to, int size) {
    const int first = from > 0.0f ? (from < (float)size ? (int)ceilf(from) : size) : 0;
    return {first, to < (float)size ? (to > 0.0f ? (int)ceilf(to) : 0) : size};
}

// Whether the mask of a box has a pixel at the input's resolution, by one block. It begins in the middle of the box, where
// most masks have one.
__device__ inline bool is_full(const Instance& instance, const Output& o, const float* box, int* found) {
    const Span across = span(box[0], box[2], o.width), down = span(box[1], box[3], o.height);
    const int columns = across.last - across.first, rows = down.last - down.first;
    if (threadIdx.x == 0) *found = 0;
    __syncthreads();
    if (columns <= 0 || rows <= 0) return false;
    const float ratio_x = (float)((double)instance.width / o.width), ratio_y = (float)((double)instance.height / o.height);
    const int pixels = columns * rows, middle = rows / 2 * columns;
    for (int begin = 0; begin < pixels && !*found; begin += blockDim.x) {
        __syncthreads();  // all have seen that nothing is found yet
        const int pixel = begin + (int)threadIdx.x;
        if (pixel < pixels) {
            const int place = (pixel + middle) % pixels;
            const Between x = between(across.first + place % columns, ratio_x, instance.width);
            const Between y = between(down.first + place / columns, ratio_y, instance.height);
            const float left = instance.at(x.low, y.low) * (1.0f - y.weight) + instance.at(x.low, y.high) * y.weight;
            const float right = instance.at(x.high, y.low) * (1.0f - y.weight) + instance.at(x.high, y.high) * y.weight;
            if (left * (1.0f - x.weight) + right * x.weight > 0.0f) *found = 1;
        }
        __syncthreads();  // what was found is seen by all
    }
    return *found != 0;
}

// The masks of kept rows at the resolution of the prototypes, a bit a pixel, the first in the highest bit. Grid: x over the
// kept rows of a picture, y over the batch.
extern "C" __global__ void masks(Output o, Limits limits, Results results) {
    __shared__ int found;
    const int number = blockIdx.x, batch = blockIdx.y;
    if (number >= o.counts[batch]) return;
    const long long at = (long long)batch * limits.max_detections + number;
    const float* box = o.kept + at * (4 + o.extras);
    const long long planes = (long long)o.extras * o.proto_width * o.proto_height;
    const Instance instance = {o.protos + batch * planes, box + 4, o.extras, o.proto_width, o.proto_height};
    const bool full = is_full(instance, o, box, &found);
    if (threadIdx.x == 0) results.full[at] = full;
    if (!full) return;
    const float across = (float)((double)o.proto_width / o.width), down = (float)((double)o.proto_height / o.height);
    const float left = box[0] * across, top = box[1] * down, right = box[2] * across, bottom = box[3] * down;
    const int bytes = (o.proto_width + 7) / 8;
    unsigned char* out = results.bits + at * bytes * o.proto_height;
    for (int i = threadIdx.x; i < bytes * o.proto_height; i += blockDim.x) {
        const int y = i / bytes, first = i % bytes * 8;
        unsigned int bits = 0;
        for (int x = first; x < first + 8 && x < o.proto_width; ++x)
            if (x >= left && x < right && y >= top && y < bottom && instance.at(x, y) > 0.0f) bits |= 0x80u >> (x - first);
        out[i] = (unsigned char)bits;
    }
}

LOOKOUT_HEAD(yolov5_extended, Extended<Yolov5Rows>)
LOOKOUT_HEAD(yolov8_extended, Extended<Yolov8Rows<false>>)
LOOKOUT_HEAD(end2end_extended, Extended<End2end>)
LOOKOUT_HEAD(yolov8_turned, Turned<Yolov8Rows<true>>)
LOOKOUT_HEAD(end2end_turned, Turned<End2end>)
