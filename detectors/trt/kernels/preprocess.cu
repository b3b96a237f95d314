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
    int cell_x, cell_y;            // of its pixels to a cell
    int format;                    // 0 BGR, 1 NV12
    int bt709;                     // NV12: 0 BT.601, 1 BT.709
    int full_range;                // NV12: 0 limited (16-235), 1 full
    int turns;                     // NV12: quarter turns clockwise that make the planes upright
    int odd_x, odd_y;              // NV12: 1 where luma begins at the second column or row of its chroma
};

struct Colours {                   // numpy: detectors.trt.kernels.COLOURS
    float scale[3], bias[3];       // of each channel of the input
    float pad;                     // grey of the padding
};

struct Taps {
    int low;
    float weight;  // of the one after it
};

struct Plane {
    const unsigned char* rows;
    unsigned int pitch;  // bytes from row to row; the whole plane is under 4 GiB
    int width, height;   // samples
};

// A place in a plane, in samples, and the size of the cells there: each is the mean of so many samples.
struct Place {
    float x, y;
    int across, down;
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

// A place that only rounding keeps from a cell's centre is there, so its neighbour has no weight. Nor has one beyond the
// border.
__device__ inline Taps taps(float centre, int cells) {
    centre = clamp(centre, 0.0f, (float)(cells - 1));
    const float nearest = rintf(centre);
    if (fabsf(centre - nearest) < 1.0f / 4096.0f) centre = nearest;
    const int low = (int)centre;
    return {low, centre - (float)low};
}

__device__ inline float blend(float a, float b, float weight) { return fmaf(b - a, weight, a); }

__device__ inline int least(int a, int b) { return a < b ? a : b; }

// Bilinear between the four cells around a place. Cells without weight are not read: at whole ratios one is left, in all
// threads. The sums of samples are integers, which add without conversion.
template <int CHANNELS>
__device__ __forceinline__ void sample_cells(const Plane& plane, const Place& place, const int across, const int down,
                                             float (&values)[CHANNELS]) {
    const float part_x = 1.0f / across, part_y = 1.0f / down;
    const Taps x = taps((place.x + 0.5f) * part_x - 0.5f, (plane.width + across - 1) / across);
    const Taps y = taps((place.y + 0.5f) * part_y - 0.5f, (plane.height + down - 1) / down);
    for (int j = 0; j < 2; ++j) {
        if (j == 1 && y.weight == 0.0f) break;
        int left[CHANNELS] = {}, right[CHANNELS] = {};
        for (int k = 0; k < down; ++k) {
            const int row = least((y.low + j) * down + k, plane.height - 1);
            const unsigned char* samples = plane.rows + (unsigned int)row * plane.pitch;
            for (int i = 0; i < across; ++i) {
                const int low = least(x.low * across + i, plane.width - 1) * CHANNELS;
                const int high = least((x.low + 1) * across + i, plane.width - 1) * CHANNELS;
                for (int channel = 0; channel < CHANNELS; ++channel) {
                    left[channel] += samples[low + channel];
                    if (x.weight != 0.0f) right[channel] += samples[high + channel];
                }
            }
        }
        for (int channel = 0; channel < CHANNELS; ++channel) {
            const float row = blend((float)left[channel], (float)right[channel], x.weight) * (part_x * part_y);
            values[channel] = j == 0 ? row : blend(values[channel], row, y.weight);
        }
    }
}

// Each channel of an interleaved plane at a place. The compiler unrolls the usual sizes of cells, which need no division.
// To unroll three for several channels takes registers from all.
template <int CHANNELS>
__device__ inline void sample(const Plane& plane, const Place& place, float (&values)[CHANNELS]) {
    if (place.across == 2 && place.down == 2)
        sample_cells(plane, place, 2, 2, values);
    else if (place.across == 1 && place.down == 1)
        sample_cells(plane, place, 1, 1, values);
    else if (CHANNELS == 1 && place.across == 3 && place.down == 3)
        sample_cells(plane, place, 3, 3, values);
    else
        sample_cells(plane, place, place.across, place.down, values);
}

__device__ inline Colour bgr(const Picture& p, const Place& place) {
    float values[3];
    sample<3>({p.plane0, (unsigned int)p.pitch, p.width, p.height}, place, values);
    return {values[0], values[1], values[2]};
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
// its cells have half of the size; it becomes colour once, which is most of the work.
__device__ inline Colour nv12(const Picture& p, const Place& upright) {
    const Point at = turned(p, upright.x, upright.y);
    const unsigned int pitch = p.pitch;
    const bool lies = p.turns & 1;
    const int width = lies ? p.height : p.width, height = lies ? p.width : p.height;
    const int across = lies ? upright.down : upright.across, down = lies ? upright.across : upright.down;
    float y[1], uv[2];
    sample<1>({p.plane0, pitch, width, height}, {at.x, at.y, across, down}, y);
    const float uv_x = at.x + p.odd_x, uv_y = at.y + p.odd_y;
    sample<2>({p.plane1, pitch, (width + p.odd_x + 1) / 2, (height + p.odd_y + 1) / 2},
              {uv_x * 0.5f, (uv_y + 0.5f) * 0.5f - 0.5f, (across + 1) / 2, (down + 1) / 2}, uv);
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
    const Place place = {(inner_x + 0.5f) * p.scale_x - 0.5f, (inner_y + 0.5f) * p.scale_y - 0.5f, p.cell_x, p.cell_y};
    return p.format ? nv12(p, place) : bgr(p, place);
}

// A picture as it is, upright, as rows of BGR. Grid: x and y over the picture.
extern "C" __global__ void to_bgr(Picture picture, unsigned char* rows) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= picture.width || y >= picture.height) return;
    const Colour colour = nv12(picture, {(float)x, (float)y, 1, 1});
    unsigned char* out = rows + 3 * ((long long)y * picture.width + x);
    out[0] = (unsigned char)(colour.blue + 0.5f);
    out[1] = (unsigned char)(colour.green + 0.5f);
    out[2] = (unsigned char)(colour.red + 0.5f);
}

// Grid: x and y over the input, z over the batch.
#define LOOKOUT_PREPROCESS(NAME, TYPE, CONVERT)                                                                          \
    extern "C" __global__ void NAME(const Picture* pictures, TYPE* input, int width, int height, int rgb,                \
                                    Colours colours) {                                                                   \
        const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;                  \
        if (x >= width || y >= height) return;                                                                           \
        const Colour colour = pixel(pictures[blockIdx.z], x, y, colours.pad);                                            \
        const long long plane = (long long)width * height;                                                               \
        TYPE* out = input + blockIdx.z * 3 * plane + (long long)y * width + x;                                           \
        out[0] = CONVERT(fmaf(rgb ? colour.red : colour.blue, colours.scale[0], colours.bias[0]));                       \
        out[plane] = CONVERT(fmaf(colour.green, colours.scale[1], colours.bias[1]));                                     \
        out[2 * plane] = CONVERT(fmaf(rgb ? colour.blue : colour.red, colours.scale[2], colours.bias[2]));               \
    }

LOOKOUT_PREPROCESS(preprocess_f32, float, )
LOOKOUT_PREPROCESS(preprocess_f16, unsigned short, to_half)
