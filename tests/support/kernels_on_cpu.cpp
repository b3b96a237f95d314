// The kernels, to be called from Python.
#include "kernels_on_cpu.h"

extern "C" void run_preprocess(const Index *grid, const Index *block, const Picture *pictures, void *input, int half,
                               int width, int height, int rgb, const Colours *colours) {
    launch(*grid, *block, [&] {
        if (half)
            preprocess_f16(pictures, static_cast<unsigned short *>(input), width, height, rgb, *colours);
        else
            preprocess_f32(pictures, static_cast<float *>(input), width, height, rgb, *colours);
    });
}

extern "C" void run_to_bgr(const Index *grid, const Index *block, const Picture *picture, unsigned char *rows) {
    launch(*grid, *block, [&] { to_bgr(*picture, rows); });
}

extern "C" void run_postprocess(const Index *grid, const Index *block, int head, const Output *output,
                                const Limits *limits, const Placement *placements, const Results *results, int batch) {
    // In the order of tests.support.raw_outputs.KERNELS.
#define KERNELS(STEP)                                                                                                  \
    {STEP##_yolov5,  STEP##_yolov8,          STEP##_yolox,           STEP##_end2end,         STEP##_logits,           \
     STEP##_shares,  STEP##_chosen_shares,   STEP##_decoded,         STEP##_yolov5_extended, STEP##_yolov8_extended,  \
     STEP##_end2end_extended, STEP##_yolov8_turned, STEP##_end2end_turned, STEP##_deepstream}
    void (*const collect[])(Output, Limits) = KERNELS(collect);
    void (*const select[])(Output, Limits, const Placement *, Results) = KERNELS(select);
    launch(*grid, *block, [&] { collect[head](*output, *limits); });
    launch_with_barriers({batch, 1, 1}, [&] { select[head](*output, *limits, placements, *results); });
    if (output->protos)
        launch_with_barriers({limits->max_detections, batch, 1}, [&] { masks(*output, *limits, *results); });
}
