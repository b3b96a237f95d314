"""The NVIDIA backend: TensorRT engines, kernels and GPU memory.

One engine, N lanes. A lane has its own stream and buffers. For each of the batch sizes 1, 2, 3, 4, 6, 8, 12 ...
max_batch it has an execution context and three CUDA graphs: preprocess, inference, postprocess. So stage times are
the GPU's own. Batches of other sizes are padded.

A context whose shape changes invalidates the graphs captured from it, so each context has one shape for good. One
runs at a time, so all share one memory for activations. A batch has one wait, without the interpreter's lock.
Everything is allocated when the lane is made, and each graph is launched once. Only a picture larger than
`gpu.frame_size` takes more, and says so once.

- Pictures. `DeviceImage` is NV12 in the GPU's memory, with the event after which it is whole; it is read where it
  lies. `HostImage` is BGR. A few threads shared by all lanes copy it into pinned memory, and each piece is on its
  way over the bus while the next is copied. One preprocess launch takes any mix of both and of sizes.
- Shrinking (`letterbox.py`, the reference). Bilinear sampling sees two pixels an axis and would skip others where a
  picture is more than twice the input's size. So cells take the place of pixels. Each is the mean of as many pixels
  as an input pixel covers in whole. At whole ratios, such as 1080p or 4K to 640, an input pixel is the mean of its
  area. At others, sampling between cells shrinks by the rest, less than two. OpenCV and the kernel do the same.
- Kernels are compiled by NVRTC for the GPU that is found, and kept. CI compiles them for the oldest and the newest
  of seven architectures, and `make test-long` for all. CI builds the same files for the CPU to compare them with
  `letterbox.py` and `heads/`. Atomics give candidates their slots in any order. Sorting by score and place in the
  output makes the result the same every time. Where there are more candidates than room, a radix select keeps the
  strongest and counts the others.
- Rows first (`rows.cuh`, `results.py`). Every head but a classifier's is decoded on the device, and only kept rows
  are written to host memory, each once. A head is a struct: its candidates, their order, what belongs to a row. The
  place in the output is a part of each sorting key, so key points, angle and coefficients are read for kept rows
  alone. Masks are made from coefficients that stay on the device, and come as bits.
- Compared when opened (`detectors/decoding_check.py`). A compiler or a GPU that decodes other boxes than the
  reference is found then, at a threshold between two scores. Then the host decodes, and a note says so.
- Equal on every backend. Queries are compared and sorted by their logits, because scores round; the scores of kept
  ones are computed in double precision. So are overlaps of boxes at an angle. Host and device do the same
  arithmetic, and their libraries differ in the last bit of a float's sine, exponential and logarithm. Sums of masks
  are in single precision: where one is nearly zero, a bit may differ.
- Meaning (`semantics.py`, `heads/`). Colours, activation, box units and the first class come from a key, the file,
  a certain family or the trial, in this order. Where outputs are those of several families, the head has an
  `ambiguity`: the unknown facts, and the line that names the keys. Facts that keys or the file state are taken away
  from it. If facts are left that no picture can show, the model is refused. `ModelInfo.facts` has each fact with
  its origin. Engines do not depend on these facts, which are the host's and the kernels' arguments: a plan stays
  good when a key changes.
- Trial (`opening.py`, `trial.py`). Each backend lets a model look at a grey picture and at noise when it opens it,
  and at drawn ones as long as a question is open. A file whose scores or boxes are not those of its layout, or that
  gives no numbers in this precision, is refused. So is one that serves only the first picture of a batch. It runs
  before kernels are chosen, because it may show another layout.
- One digest (`weights.py`). External weights are a part of a model's digest, and the digest is a part of each
  recipe, record and archive. It is kept by the files' size, inode and times.
- Parts for a second stage (`cutter.py`). One launch of the preprocess kernel takes all parts of a batch from the
  decoder's surfaces into a ring of inputs of the second model. Its lane copies them to its own input. A surface is
  leased until that launch is done, and a slot until nothing refers to it.
- A server (`detectors/triton`). `DetectorUnavailableError` is a state and not a failure: the lane counts the batch
  as `detector_unavailable` and goes on. One thread tries the server, so no lane waits for a host that does not
  answer. A request that fails may still be under way, so its memory is given up and not used again. tritonclient
  makes and reads the requests. Sockets are http.client's: each read has a deadline, which tritonclient's client
  does not have.
- Snapshots (`fetching.py`). A kernel turns a picture of the GPU's to BGR, and a stream of its own copies it. The
  lane only enqueues, and the thread that wants the picture waits.
- Engines. The key is the ONNX file's hash, TensorRT's version, the GPU, precision, batch, input size, builder
  level, and the version of Lookout's own recipe (`recipe.py`). A plan that is damaged, made for another GPU or
  version, or that TensorRT cannot load is quarantined as `.bad` and built again. Building is a process of its own:
  TensorRT's builder keeps gigabytes, does not hear signals, and may crash.
- Precision comes from the graph. TensorRT 8.6 gets a builder flag for FP16. 10 and 11 get a strongly typed network
  of a graph that `half.py` has converted, all but the part after the last convolution, which computes pixels. The
  manifest says which. (10 would take either; it gets 11's.) The converters at hand were tried first: onnxruntime's
  writes one cast twice where two FP32 nodes read one FP16 tensor, and ModelOpt's brings 6 GB.
- Memory is added up before lanes are made (`memory_plan.py`). Over `gpu.memory_limit_mib`, or over the free memory,
  lanes go first, then the batch is halved, then the model is refused. Classifiers are opened before the first
  model, so that it can leave them their memory. Decoders get what models leave. The share of CUDA and TensorRT
  themselves was measured on one card.

It has run on 8.6.0 alone. CI checks that every call it makes on TensorRT exists in the real bindings of 8.6.1,
10.16 and 11.4. CI also runs all of it over stand-ins (`tests/trt`, and the contract of detectors). One is a driver
whose kernels are the CPU build of the same files; its streams, events and graphs keep CUDA's rules and report
violations. The other is a TensorRT of each of the three versions that runs the graph by onnxruntime. Each call of
both fails once there.
"""
