// As much of libcuda as decoding takes, without a GPU: device memory is the host's, and a stream does nothing until
// somebody waits for it, or has asked three times whether it is done.
// The machine has LOOKOUT_TEST_GPUS of them (one), of which CUDA_VISIBLE_DEVICES shows some, by number or name.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <sstream>
#include <string>
#include <vector>

#include <ffnvcodec/dynlink_cuda.h>

namespace {
int alive = 0; // memory, streams and events

struct Stream {
    std::deque<CUDA_MEMCPY2D> waiting;
    long begun = 0, done = 0;

    void run_to(long end) {
        for (; done < end; ++done, waiting.pop_front()) {
            auto &copy = waiting.front();
            for (size_t row = 0; row < copy.Height; ++row)
                memcpy(reinterpret_cast<char *>(copy.dstDevice) + row * copy.dstPitch,
                       reinterpret_cast<char *>(copy.srcDevice) + row * copy.srcPitch, copy.WidthInBytes);
        }
    }
};

std::vector<int> visible; // GPUs of the machine, by this process's numbers

CUuuid name_of(int gpu) {
    CUuuid name = {};
    name.bytes[15] = static_cast<char>(gpu + 1);
    return name;
}

void look() {
    const char *some = getenv("LOOKOUT_TEST_GPUS"), *shown = getenv("CUDA_VISIBLE_DEVICES");
    const int count = some ? atoi(some) : 1;
    visible.clear();
    if (!shown)
        for (int gpu = 0; gpu < count; ++gpu)
            visible.push_back(gpu);
    std::stringstream names(shown ? shown : "");
    for (std::string name; std::getline(names, name, ',');) {
        const int gpu = name.rfind("GPU-", 0) == 0 ? std::stoi(name.substr(name.size() - 2), nullptr, 16) - 1
                                                   : std::stoi(name);
        if (gpu < 0 || gpu >= count)
            break; // as the driver has it: what follows a wrong one is not shown either
        visible.push_back(gpu);
    }
}

struct Event {
    Stream *stream = nullptr;
    long until = 0;
    int asked = 0;
};

template <typename Made> CUresult make(void *where) {
    *static_cast<Made **>(where) = new Made;
    ++alive;
    return CUDA_SUCCESS;
}

template <typename Made> CUresult destroy(void *handle) {
    delete static_cast<Made *>(handle);
    --alive;
    return CUDA_SUCCESS;
}
} // namespace

extern "C" {
int cuda_alive() { return alive; }

CUresult cuInit(unsigned) { return look(), CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { return *version = 12080, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { return *count = static_cast<int>(visible.size()), CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int number) { return *device = visible.at(number), CUDA_SUCCESS; }
CUresult cuDeviceGetUuid_v2(CUuuid *name, CUdevice device) { return *name = name_of(device), CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *name, int size, CUdevice) { return strncpy(name, "a stand-in", size), CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, int, CUdevice) { return *value = 9, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(void **context, CUdevice) { return *context = &alive, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(void *) { return CUDA_SUCCESS; }
CUresult cuMemGetInfo(size_t *free, size_t *total) { return *free = *total = 1ul << 33, CUDA_SUCCESS; }

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t size) {
    *pointer = reinterpret_cast<CUdeviceptr>(calloc(1, size));
    ++alive;
    return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr pointer) {
    free(reinterpret_cast<void *>(pointer));
    --alive;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(void **stream, unsigned) { return make<Stream>(stream); }
CUresult cuStreamDestroy(void *stream) { return destroy<Stream>(stream); }
CUresult cuStreamSynchronize(Stream *stream) { return stream->run_to(stream->begun), CUDA_SUCCESS; }

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, Stream *stream) {
    if (copy->srcMemoryType != CU_MEMORYTYPE_DEVICE || copy->dstMemoryType != CU_MEMORYTYPE_DEVICE)
        return static_cast<CUresult>(1);
    stream->waiting.push_back(*copy);
    ++stream->begun;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(void **event, unsigned) { return make<Event>(event); }
CUresult cuEventDestroy(void *event) { return destroy<Event>(event); }
CUresult cuEventRecord(Event *event, Stream *stream) { return *event = {stream, stream->begun}, CUDA_SUCCESS; }

CUresult cuEventSynchronize(Event *event) {
    if (event->stream)
        event->stream->run_to(event->until);
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(Event *event) {
    if (!event->stream || event->stream->done >= event->until)
        return CUDA_SUCCESS;
    if (++event->asked == 3)
        event->stream->run_to(event->until);
    return CUDA_ERROR_NOT_READY;
}

// NVIDIA's bindings look everything up here.
CUresult cuGetProcAddress_v2(const char *name, void **address, int, unsigned long long, int *status) {
    *address = dlsym(RTLD_DEFAULT, name);
    if (!*address)
        *address = dlsym(RTLD_DEFAULT, (std::string(name) + "_v2").c_str());
    if (status)
        *status = *address ? 0 : 1;
    return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const char *name, void **address, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, address, version, flags, nullptr);
}
}
