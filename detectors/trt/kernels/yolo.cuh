// YOLO's layouts of rows. See rows.cuh, and detectors/heads/rows.py.
#ifndef LOOKOUT_YOLO
#define LOOKOUT_YOLO
#include "rows.cuh"

// One head each: the candidates of one row of a picture's output. `take` gets a candidate and its place in the output.
// `extra` is a value of a row beside its box and scores.
struct Yolov5Rows : Rows {
    static __device__ inline const float* of(const Output& o, int batch, int row) {
        return o.values + ((long long)batch * o.rows + row) * (5 + o.classes + o.extras);
    }

    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const float* r = of(o, batch, row);
        if (!(r[4] >= limits.confidence)) return;
        classes_of(o, limits, r + 5, 1, r[4], [&](int c, float score) {
            take(centred(r[0], r[1], r[2], r[3], score, c), (unsigned int)row * (unsigned int)o.classes + (unsigned int)c);
        });
    }

    static __device__ inline float extra(const Output& o, int batch, int row, int number) {
        return of(o, batch, row)[5 + o.classes + number];
    }
};

// TURNED: boxes at an angle, which stay centre and size.
template <bool TURNED>
__device__ inline Candidate boxed(float cx, float cy, float w, float h, float score, int class_id) {
    if (TURNED) return {cx, cy, w, h, score, class_id};
    return centred(cx, cy, w, h, score, class_id);
}

template <bool TURNED>
struct Yolov8Rows : Rows {
    static __device__ inline const float* of(const Output& o, int batch, int row) {
        return o.values + (long long)batch * o.rows * (4 + o.classes + o.extras) + row;
    }

    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const long long n = o.rows;
        const float* r = of(o, batch, row);
        classes_of(o, limits, r + 4 * n, n, 1.0f, [&](int c, float score) {
            take(boxed<TURNED>(r[0], r[n], r[2 * n], r[3 * n], score, c),
                 (unsigned int)row * (unsigned int)o.classes + (unsigned int)c);
        });
    }

    static __device__ inline float extra(const Output& o, int batch, int row, int number) {
        return of(o, batch, row)[(long long)(4 + o.classes + number) * o.rows];
    }
};

struct Yolox : Rows {
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

struct End2end : Rows {
    static __device__ inline const float* of(const Output& o, int batch, int row) {
        return o.values + ((long long)batch * o.rows + row) * (6 + o.extras);
    }

    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const float* r = of(o, batch, row);
        if (!(r[4] >= limits.confidence)) return;
        take({r[0], r[1], r[2], r[3], r[4], whole(r[5])}, (unsigned int)row);
    }

    static __device__ inline float extra(const Output& o, int batch, int row, int number) {
        return of(o, batch, row)[6 + number];
    }
};

// The older rows of DeepStream-Yolo: centre and size, score of the best class, class, objectness.
struct DeepStream : End2end {
    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const float* r = of(o, batch, row);
        const float score = r[4] * r[6];
        if (score >= limits.confidence) take(centred(r[0], r[1], r[2], r[3], score, whole(r[5])), (unsigned int)row);
    }
};

#endif
