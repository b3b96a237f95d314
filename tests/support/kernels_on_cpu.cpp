// The kernels themselves, compiled for the CPU: blocks and threads become loops. select_boxes works with any number of
// threads a block, so it runs here with one, and barriers have nothing to do.
#define LOOKOUT_ON_CPU
#include <cmath>
#include <cstring>

#define __global__
#define __device__
struct Index {
    int x, y, z;
};
static Index blockIdx, blockDim, threadIdx;
static inline void __syncthreads() {}
static inline int atomicAdd(int* at, int value) {
    const int old = *at;
    *at += value;
    return old;
}
static inline unsigned int __float_as_uint(float value) {
    unsigned int bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
static inline unsigned short to_half(float value) {
    const _Float16 half = static_cast<_Float16>(value);
    unsigned short bits;
    std::memcpy(&bits, &half, sizeof bits);
    return bits;
}

#include "preprocess.cu"
#include "postprocess.cu"

template <typename Kernel>
static void launch(Index grid, Index block, Kernel kernel) {
    blockDim = block;
    for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
                for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y)
                    for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x) kernel();
}

extern "C" void run_preprocess(const Index* grid, const Index* block, const Picture* pictures, void* input, int half,
                               int width, int height, int rgb, float scale, float pad) {
    launch(*grid, *block, [&] {
        if (half)
            preprocess_f16(pictures, static_cast<unsigned short*>(input), width, height, rgb, scale, pad);
        else
            preprocess_f32(pictures, static_cast<float*>(input), width, height, rgb, scale, pad);
    });
}

extern "C" void run_postprocess(const Index* grid, const Index* block, int head, const Output* output,
                                const Limits* limits, const Placement* placements, float* boxes, int* kept, int batch) {
    void (*const collect[])(Output, Limits) = {collect_yolov5, collect_yolov8, collect_yolox, collect_end2end};
    launch(*grid, *block, [&] { collect[head](*output, *limits); });
    launch({batch, 1, 1}, {1, 1, 1}, [&] { select_boxes(*output, *limits, placements, boxes, kept); });
}
