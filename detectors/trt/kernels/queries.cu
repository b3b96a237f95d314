// DETR's heads: raw output to boxes in source pixels, without NMS. See rows.cuh, and detectors/heads/queries.py.
#include "rows.cuh"

// Boxes are centre and size as shares of the input.
__device__ inline Candidate shared(const Output& o, const float* box, float score, int class_id) {
    const Candidate c = centred(box[0], box[1], box[2], box[3], score, class_id);
    return {c.x1 * o.width, c.y1 * o.height, c.x2 * o.width, c.y2 * o.height, score, class_id};
}

// Candidates beyond the limit of boxes.
__device__ inline int beyond(const Limits& limits, int count) {
    return count > limits.max_detections ? count - limits.max_detections : 0;
}

// Logits and boxes in two outputs. Logits are compared and sorted as they are, because a score rounds; only those of kept
// boxes become scores, in double precision, so that rounding is the same everywhere. A query may give several classes, and
// there are at most as many boxes as queries (`limits.most`). `limits.confidence` is a logit.
struct Logits : Rows {
    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const long long query = (long long)batch * o.rows + row;
        const float* logits = o.values + query * o.classes;
        for (int c = 0; c < o.classes; ++c)
            if (logits[c] >= limits.confidence)
                take(shared(o, o.boxes + query * 4, logits[c], c),
                     (unsigned int)row * (unsigned int)o.classes + (unsigned int)c);
    }

    // Floats of both signs in the order of unsigned integers.
    static __device__ inline unsigned int rank(float logit) {
        const unsigned int bits = __float_as_uint(logit + 0.0f);
        return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    }

    static __device__ inline int left_out(const Limits& limits, int all) {
        return beyond(limits, all < limits.most ? all : limits.most);
    }

    static __device__ inline bool write(const Output&, const Limits& limits, const Placement& place,
                                        const Results& results, const Kept& kept) {
        return threadIdx.x == 0 && write_upright(limits, place, results, kept,
                                                 (float)(1.0 / (1.0 + exp(-(double)kept.box.score))));
    }
};

// Boxes and scores of all classes in one output.
struct Shares : Rows {
    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const float* r = o.values + ((long long)batch * o.rows + row) * (4 + o.classes);
        classes_of(o, limits, r + 4, 1, 1.0f, [&](int c, float score) {
            take(shared(o, r, score, c), (unsigned int)row * (unsigned int)o.classes + (unsigned int)c);
        });
    }

    static __device__ inline int left_out(const Limits& limits, int all) { return beyond(limits, all); }
};

// The model has chosen: a score and a class a row.
struct Chosen : Rows {
    static __device__ inline int left_out(const Limits&, int) { return 0; }
};

// Boxes, scores and classes in one output.
struct ChosenShares : Chosen {
    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const float* r = o.values + ((long long)batch * o.rows + row) * 6;
        if (r[4] >= limits.confidence) take(shared(o, r, r[4], whole(r[5])), (unsigned int)row);
    }
};

// Scores, boxes as corners in pixels of the input, and class ids in three outputs.
struct Decoded : Chosen {
    template <typename Take>
    static __device__ inline void row(const Output& o, const Limits& limits, int batch, int row, Take take) {
        const long long at = (long long)batch * o.rows + row;
        const float score = o.values[at], *r = o.boxes + at * 4;
        if (score >= limits.confidence) take({r[0], r[1], r[2], r[3], score, label(o, at)}, (unsigned int)row);
    }

    // As the host has it, for which every output is an array of float.
    static __device__ inline int label(const Output& o, long long at) {
        if (o.label_bytes == 8) return whole((float)((const long long*)o.labels)[at]);
        if (o.label_bytes == 4) return whole((float)((const int*)o.labels)[at]);
        return whole(((const float*)o.labels)[at]);
    }
};

LOOKOUT_HEAD(logits, Logits)
LOOKOUT_HEAD(shares, Shares)
LOOKOUT_HEAD(chosen_shares, ChosenShares)
LOOKOUT_HEAD(decoded, Decoded)
