"""Capture in processes of their own; pictures are handed over in shared memory.

One process of CPython has one lock, and decoding releases and takes it several times a frame. On an H200 that ended
at two thirds of the hardware. So where the GPU decodes, sources with packets (`type: av`) are captured in processes
of their own, `capture_processes`. They run the same `Capture`, with its steps, accounts and states. A sender stands
in place of board, ledger, publisher and admission (`capture/sinks.py` has the ports). They share a socket and
memory with the daemon:

- Two kinds (`capture/processes/pool.py`): sources that the CPU decodes have processes of their own beside those of
  the GPU's decoder, because of the lock again, and come last where cores are short. Sources beyond the decoder's
  sessions are known beforehand, and go there. Sources that insist on the decoder (`nvdec`) come first.
- Channel (`capture/processes/channel.py`): one packet socket for each process, lists of MessagePack structs: frames
  (all of `FrameInfo`, and where the picture lies), skipped pictures, states, admission. They come in order, so a
  source's `ended` comes after its last frame. Live frames go at most every 2 ms, all that there are: a wake-up
  costs more than a frame.
- Pictures stay in the decoder's surfaces: in GPU memory, or in the host's where the CPU decodes. Both sides map
  that memory by a file descriptor. A frame is sent once its picture is whole, so no event of the GPU is shared between
  processes. Later frames of the same source wait for it; other sources do not. Its buffer is leased until the
  daemon's last user releases it, and the release travels with the next packet. The number of leased buffers is
  bounded (lossless: `board.depth`).
- One template (`system/template.py`): the daemon's other processes, those of rules, of the page and of a model's
  trial as well, are forked from a process that has imported what they run. So each begins within milliseconds,
  where imports took 0.4 s, and shares their memory. The template has one thread and opens nothing, or it could not
  be forked safely. It tells the daemon how each process ended. If the daemon dies it ends, and the kernel kills
  what was forked from it, even what hangs. If it dies, so do they, and the next one wanted starts another. One that
  does not answer for 10 s is killed.
- A process that dies, or gives no sign of life for 30 s (60 s when it begins), affects no other part. Its sources
  are `down` with the reason, and their numbers go on in a new process. A recording that had begun is `ended` with
  the reason instead. The memory stays until its last user is gone. If the daemon dies, its processes end. (Under
  MPS NVIDIA promises this only of a process with nothing under way on the GPU; it has been tried with a stand-in
  alone.)
- MPS (`daemon/system/mps.py`): without it processes take turns on the GPU, which costs a quarter of the engine and
  more beside full decoding. With several processes the daemon starts one for itself, in a folder of its own, and it
  ends with the daemon.
- Lossless batches take several frames of few sources, so that other lanes find sources that are not in flight.

Where the CPU decodes there are capture processes too, one for each 8 sources with packets, and 4 at most. A camera
that makes FFmpeg crash, or take memory, takes its process and not the daemon. FFmpeg allocates no more than 256 MiB
at once. It takes no picture larger than 8K unless `options: {max_pixels: ...}` says so. `capture_processes: 0`
captures in the daemon's own process.

An error that poisons the GPU's context of a capture process ends that process alone; the next one begins with a
context of its own.
"""
