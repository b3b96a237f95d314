// The heads of YOLO that find upright boxes alone.
#include "yolo.cuh"

LOOKOUT_HEAD(yolov5, Yolov5Rows)
LOOKOUT_HEAD(yolov8, Yolov8Rows<false>)
LOOKOUT_HEAD(yolox, Yolox)
LOOKOUT_HEAD(end2end, End2end)
LOOKOUT_HEAD(deepstream, DeepStream)
