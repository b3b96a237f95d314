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
    float scale_x, scale_y;        // of its pixels to one of the input
    int format;                    // 0 BGR, 1 NV12
    int bt709;                     // NV12: 0 BT.601, 1 BT.709
    int full_range;                // NV12: 0 limited (16-235), 1 full
    int turns;                     // NV12: quarter turns clockwise that make the planes upright
};

struct Taps {
    int low, high;
    float weight;  // of high
};

struct Plane {
    const unsigned char* rows;
    unsigned int pitch;  // bytes from row to row; the whole plane is under 4 GiB
    int width, height;   // samples
};

// What a pixel of the input covers: its centre and its size, in samples of a plane.
struct Area {
    float x, y, width, height;
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
    const int whole = (int)centre, last = size > 1 ? size - 2 : 0, low = whole < last ? whole : last;
    return {low, low + (size > 1), centre - (float)low};
}

__device__ inline float blend(float a, float b, float weight) { return fmaf(b - a, weight, a); }

// 1 / count. All threads of a picture have the same count, so that the usual ones cost no division.
__device__ inline float part(int count) { return count == 1 ? 1.0f : count == 2 ? 0.5f : 1.0f / count; }

// So many places of an area are looked at along an axis: none of the source is skipped, for each place sees two samples.
__device__ inline int places(float size) { return size > 2.0f ? (int)ceilf(size * 0.5f) : 1; }

template <int CHANNELS>
__device__ __forceinline__ void mean_of(const Plane& plane, const Area& area, const int across, const int down,
                                        float (&means)[CHANNELS]) {
    const float step_x = area.width * part(across), step_y = area.height * part(down);
    const float first_x = area.x - 0.5f * (across - 1) * step_x, first_y = area.y - 0.5f * (down - 1) * step_y;
    for (float& sum : means) sum = 0.0f;
    for (int j = 0; j < down; ++j) {
        const Taps y = taps(first_y + j * step_y, plane.height);
        const unsigned char* above = plane.rows + (unsigned int)y.low * plane.pitch;
        const unsigned char* below = plane.rows + (unsigned int)y.high * plane.pitch;
        for (int i = 0; i < across; ++i) {
            const Taps x = taps(first_x + i * step_x, plane.width);
            for (int channel = 0; channel < CHANNELS; ++channel) {
                const int low = x.low * CHANNELS + channel, high = x.high * CHANNELS + channel;
                const float left = blend(above[low], below[low], y.weight);
                const float right = blend(above[high], below[high], y.weight);
                means[channel] += blend(left, right, x.weight);
            }
        }
    }
    const float share = part(across) * part(down);
    for (float& sum : means) sum *= share;
}

// The mean of each channel of an interleaved plane over an area. The compiler unrolls the usual numbers of places.
template <int CHANNELS>
__device__ inline void mean(const Plane& plane, const Area& area, float (&means)[CHANNELS]) {
    const int across = places(area.width), down = places(area.height);
    if (across == 2 && down == 2)
        mean_of(plane, area, 2, 2, means);
    else if (across == 1 && down == 1)
        mean_of(plane, area, 1, 1, means);
    else
        mean_of(plane, area, across, down, means);
}

__device__ inline Colour bgr(const Picture& p, const Area& area) {
    float means[3];
    mean<3>({p.plane0, (unsigned int)p.pitch, p.width, p.height}, area, means);
    return {means[0], means[1], means[2]};
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

// Chroma lies between its two rows and on the left of its two columns, as MPEG has it. It has half of the samples, so
// that it takes fewer places; it becomes colour once, which is most of the work.
__device__ inline Colour nv12(const Picture& p, const Area& upright) {
    const Point at = turned(p, upright.x, upright.y);
    const unsigned int pitch = p.pitch;
    const bool lies = p.turns & 1;
    const int width = lies ? p.height : p.width, height = lies ? p.width : p.height;
    const float across = lies ? upright.height : upright.width, down = lies ? upright.width : upright.height;
    float y[1], uv[2];
    mean<1>({p.plane0, pitch, width, height}, {at.x, at.y, across, down}, y);
    mean<2>({p.plane1, pitch, (width + 1) / 2, (height + 1) / 2},
            {at.x * 0.5f, (at.y + 0.5f) * 0.5f - 0.5f, across * 0.5f, down * 0.5f}, uv);
    float luma = y[0], u = uv[0] - 128.0f, v = uv[1] - 128.0f;
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

__device__ inline Colour pixel(const Picture& p, int x, int y, float pad) {
    const int inner_x = x - p.left, inner_y = y - p.top;
    if (inner_x < 0 || inner_y < 0 || inner_x >= p.inner_width || inner_y >= p.inner_height) return {pad, pad, pad};
    const Area area = {(inner_x + 0.5f) * p.scale_x - 0.5f, (inner_y + 0.5f) * p.scale_y - 0.5f, p.scale_x, p.scale_y};
    return p.format ? nv12(p, area) : bgr(p, area);
}

// A picture as it is, upright, as rows of BGR. Grid: x and y over the picture.
extern "C" __global__ void to_bgr(Picture picture, unsigned char* rows) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= picture.width || y >= picture.height) return;
    const Colour colour = nv12(picture, {(float)x, (float)y, 1.0f, 1.0f});
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
