// Pictures of any sizes and formats into the model's planar input: one launch for a batch.
//
// The geometry is that of detectors/letterbox.py: half-pixel centres, clamped borders. A test compiles this very file for
// the CPU and compares.

struct Picture {                   // numpy: detectors.trt.kernels.PICTURE
    const unsigned char* plane0;   // BGR, or Y of NV12
    const unsigned char* plane1;   // UV of NV12
    int pitch;                     // bytes from row to row, of both planes
    int width, height;             // of the picture, upright
    int left, top, inner_width, inner_height;  // where it lies in the input
    int format;                    // 0 BGR, 1 NV12
    int bt709;                     // NV12: 0 BT.601, 1 BT.709
    int full_range;                // NV12: 0 limited (16-235), 1 full
    int turns;                     // NV12: quarter turns clockwise that make the planes upright
};

struct Taps {
    int low, high;
    float weight;  // of high
};

struct Colour {
    float blue, green, red;
};

#ifndef LOOKOUT_ON_CPU
__device__ inline unsigned short to_half(float value) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}
#endif

__device__ inline float clamp(float value, float low, float high) { return fminf(fmaxf(value, low), high); }

__device__ inline Taps taps(float centre, int size) {
    centre = clamp(centre, 0.0f, (float)(size - 1));
    const int low = (int)centre;
    return {low, low + 1 < size ? low + 1 : low, centre - (float)low};
}

__device__ inline float blend(float a, float b, float weight) { return a * (1.0f - weight) + b * weight; }

// One channel of an interleaved plane: `step` bytes from pixel to pixel.
__device__ inline float sample(const unsigned char* plane, int pitch, int step, const Taps& x, const Taps& y) {
    const unsigned char* above = plane + (long long)y.low * pitch;
    const unsigned char* below = plane + (long long)y.high * pitch;
    const float left = blend(above[x.low * step], below[x.low * step], y.weight);
    const float right = blend(above[x.high * step], below[x.high * step], y.weight);
    return blend(left, right, x.weight);
}

__device__ inline Colour bgr(const Picture& p, float x, float y) {
    const Taps across = taps(x, p.width), down = taps(y, p.height);
    return {sample(p.plane0, p.pitch, 3, across, down), sample(p.plane0 + 1, p.pitch, 3, across, down),
            sample(p.plane0 + 2, p.pitch, 3, across, down)};
}

struct Point {
    float x, y;
};

// Where a point of the upright picture lies in the planes.
__device__ inline Point turned(const Picture& p, float x, float y) {
    const float right = (float)(p.width - 1) - x, bottom = (float)(p.height - 1) - y;
    if (p.turns == 1) return {y, right};
    if (p.turns == 2) return {right, bottom};
    if (p.turns == 3) return {bottom, x};
    return {x, y};
}

// Chroma lies between its two rows and on the left of its two columns, as MPEG has it.
__device__ inline Colour nv12(const Picture& p, float upright_x, float upright_y) {
    const Point at = turned(p, upright_x, upright_y);
    const int width = p.turns & 1 ? p.height : p.width, height = p.turns & 1 ? p.width : p.height;
    const Taps across = taps(at.x, width), down = taps(at.y, height);
    const Taps half_across = taps(at.x * 0.5f, (width + 1) / 2);
    const Taps half_down = taps((at.y + 0.5f) * 0.5f - 0.5f, (height + 1) / 2);
    float luma = sample(p.plane0, p.pitch, 1, across, down);
    float u = sample(p.plane1, p.pitch, 2, half_across, half_down) - 128.0f;
    float v = sample(p.plane1 + 1, p.pitch, 2, half_across, half_down) - 128.0f;
    if (!p.full_range) {
        luma = (luma - 16.0f) * (255.0f / 219.0f);
        u *= 255.0f / 224.0f;
        v *= 255.0f / 224.0f;
    }
    // ITU-R BT.601 and BT.709: weights of red and blue in luma.
    const float kr = p.bt709 ? 0.2126f : 0.299f, kb = p.bt709 ? 0.0722f : 0.114f, kg = 1.0f - kr - kb;
    const float blue = luma + 2.0f * (1.0f - kb) * u;
    const float red = luma + 2.0f * (1.0f - kr) * v;
    const float green = luma - (2.0f * kb * (1.0f - kb) * u + 2.0f * kr * (1.0f - kr) * v) / kg;
    return {clamp(blue, 0.0f, 255.0f), clamp(green, 0.0f, 255.0f), clamp(red, 0.0f, 255.0f)};
}

// How many places a pixel looks at along an axis: none of the source is skipped, for each place sees two pixels.
__device__ inline int samples(int source, int target) {
    const int most = (source + 2 * target - 1) / (2 * target);
    return most > 1 ? most : 1;
}

__device__ inline Colour pixel(const Picture& p, int x, int y, float pad) {
    const int inner_x = x - p.left, inner_y = y - p.top;
    if (inner_x < 0 || inner_y < 0 || inner_x >= p.inner_width || inner_y >= p.inner_height) return {pad, pad, pad};
    const int across = samples(p.width, p.inner_width), down = samples(p.height, p.inner_height);
    const float step_x = (float)p.width / (p.inner_width * across), step_y = (float)p.height / (p.inner_height * down);
    Colour sum = {0.0f, 0.0f, 0.0f};
    for (int j = 0; j < down; ++j) {
        const float source_y = (inner_y * down + j + 0.5f) * step_y - 0.5f;
        for (int i = 0; i < across; ++i) {
            const float source_x = (inner_x * across + i + 0.5f) * step_x - 0.5f;
            const Colour one = p.format ? nv12(p, source_x, source_y) : bgr(p, source_x, source_y);
            sum.blue += one.blue;
            sum.green += one.green;
            sum.red += one.red;
        }
    }
    const float share = 1.0f / (across * down);
    return {sum.blue * share, sum.green * share, sum.red * share};
}

// A picture as it is, upright, as rows of BGR. Grid: x and y over the picture.
extern "C" __global__ void to_bgr(Picture picture, unsigned char* rows) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= picture.width || y >= picture.height) return;
    const Colour colour = nv12(picture, (float)x, (float)y);
    unsigned char* out = rows + 3 * ((long long)y * picture.width + x);
    out[0] = (unsigned char)(colour.blue + 0.5f);
    out[1] = (unsigned char)(colour.green + 0.5f);
    out[2] = (unsigned char)(colour.red + 0.5f);
}

// Grid: x and y over the input, z over the batch.
#define LOOKOUT_PREPROCESS(NAME, TYPE, CONVERT)                                                                          \
    extern "C" __global__ void NAME(const Picture* pictures, TYPE* input, int width, int height, int rgb, float scale,   \
                                    float pad) {                                                                         \
        const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;                  \
        if (x >= width || y >= height) return;                                                                           \
        const Colour colour = pixel(pictures[blockIdx.z], x, y, pad);                                                    \
        const long long plane = (long long)width * height;                                                               \
        TYPE* out = input + blockIdx.z * 3 * plane + (long long)y * width + x;                                           \
        out[0] = CONVERT((rgb ? colour.red : colour.blue) * scale);                                                      \
        out[plane] = CONVERT(colour.green * scale);                                                                      \
        out[2 * plane] = CONVERT((rgb ? colour.blue : colour.red) * scale);                                              \
    }

LOOKOUT_PREPROCESS(preprocess_f32, float, )
LOOKOUT_PREPROCESS(preprocess_f16, unsigned short, to_half)
