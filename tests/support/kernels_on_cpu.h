// The kernels themselves, compiled for the CPU: blocks become loops, and so do the threads of a block. Where a kernel has
// barriers its threads are fibres: each runs up to the next barrier, and none goes on before all are there.
#pragma once
#define LOOKOUT_ON_CPU
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <ucontext.h>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static thread_local // of one block, and one block runs at a time
struct Index {
    int x, y, z;
};
static thread_local Index blockIdx, blockDim, threadIdx;

namespace fibres {
constexpr size_t stack_bytes = 128 << 10;

struct Fibre {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[stack_bytes]};
    bool done = false;
};

static thread_local ucontext_t scheduler;
static thread_local Fibre *running = nullptr;
static thread_local const std::function<void()> *kernel = nullptr;

static void begin() {
    (*kernel)();
    running->done = true;
    swapcontext(&running->context, &scheduler);
}

// The threads of one block, from the first or from the last: what depends on their order must not show.
static void run(int count, bool backwards, const std::function<void()> &body) {
    static thread_local std::vector<std::unique_ptr<Fibre>> fibres;
    while (static_cast<int>(fibres.size()) < count)
        fibres.push_back(std::make_unique<Fibre>());
    kernel = &body;
    for (int i = 0; i < count; ++i) {
        Fibre &fibre = *fibres[i];
        fibre.done = false;
        getcontext(&fibre.context);
        fibre.context.uc_stack = {fibre.stack.get(), 0, stack_bytes};
        fibre.context.uc_link = nullptr;
        makecontext(&fibre.context, begin, 0);
    }
    for (bool left = true; left;) {
        left = false;
        for (int i = 0; i < count; ++i) {
            const int number = backwards ? count - 1 - i : i;
            running = fibres[number].get();
            if (running->done)
                continue;
            threadIdx = {number, 0, 0};
            swapcontext(&scheduler, &running->context);
            left = left || !running->done;
        }
    }
    running = nullptr;
}
} // namespace fibres

static inline void __syncthreads() {
    if (fibres::running)
        swapcontext(&fibres::running->context, &fibres::scheduler);
}

static inline int atomicAdd(int *at, int value) {
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

#include "queries.cu"

#include "tasks.cu"

constexpr int fibres_a_block = 8;

template <typename Body> static void each_block(Index grid, Index block, Body body) {
    blockDim = block;
    for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
                body();
}

// A kernel without barriers.
template <typename Kernel> static void launch(Index grid, Index block, Kernel kernel) {
    each_block(grid, block, [&] {
        for (threadIdx.y = 0; threadIdx.y < block.y; ++threadIdx.y)
            for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x)
                kernel();
    });
}

// One that has some, and works with any number of threads a block.
template <typename Kernel> static void launch_with_barriers(Index grid, Kernel kernel) {
    const char *order = std::getenv("LOOKOUT_TEST_ORDER");
    const bool backwards = order && std::strcmp(order, "backwards") == 0;
    each_block(grid, {fibres_a_block, 1, 1}, [&] { fibres::run(fibres_a_block, backwards, kernel); });
}
