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
    // In the order of tests.support.kernels.KERNELS.
    void (*const collect[])(Output, Limits) = {collect_yolov5,  collect_yolov8, collect_yolox,         collect_end2end,
                                               collect_logits, collect_shares, collect_chosen_shares, collect_decoded};
    void (*const select[])(Output, Limits, const Placement *, Results) = {
        select_yolov5, select_yolov8, select_yolox,         select_end2end,
        select_logits, select_shares, select_chosen_shares, select_decoded};
    launch(*grid, *block, [&] { collect[head](*output, *limits); });
    launch_with_barriers({batch, 1, 1}, [&] { select[head](*output, *limits, placements, *results); });
}
