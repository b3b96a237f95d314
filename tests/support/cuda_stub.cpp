// As much of libcuda as Lookout calls, without a GPU, and stricter than a GPU is: device memory is the host's, between
// guards; a stream does nothing until somebody waits for it, or has asked three times whether it is done; kernels are
// those of detectors/trt, compiled for the CPU. Each call is counted, and can be made to fail.
//
// The machine has LOOKOUT_TEST_GPUS of them (one) with LOOKOUT_TEST_GPU_MIB each (8192), of which CUDA_VISIBLE_DEVICES
// shows some, by number or name. Their compute capability is LOOKOUT_TEST_CAPABILITY (9.0).
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <time.h>
#include <tuple>
#include <unistd.h>

#include <ffnvcodec/dynlink_cuda.h>

#include "kernels_on_cpu.h"

namespace {
enum Code {
    invalid_value = 1,
    out_of_memory = 2,
    invalid_context = 201,
    invalid_image = 200,
    not_ready = 600,
    invalid_handle = 400,
    not_found = 500,
    context_is_destroyed = 709,
    capture_unsupported = 900,
    capture_invalidated = 901,
};

// --- each call is counted, and can be made to fail -----------------------------------------------------------------

std::mutex calls_lock;
std::map<std::string, long> counted;
std::string failing;
long failing_at = 0;
int failing_with = 0;

CUresult called(std::string name) {
    if (name.size() > 3 && name.compare(name.size() - 3, 3, "_v2") == 0)
        name.resize(name.size() - 3);
    std::lock_guard<std::mutex> guard(calls_lock);
    const long number = ++counted[name];
    return static_cast<CUresult>(name == failing && number == failing_at ? failing_with : 0);
}

// --- handles ---------------------------------------------------------------------------------------------------------

std::mutex handles_lock;
std::map<void *, const char *> handles; // alive, and what they are

void *alive(void *handle, const char *kind) {
    std::lock_guard<std::mutex> guard(handles_lock);
    handles[handle] = kind;
    return handle;
}

bool is_alive(void *handle, const char *kind) {
    std::lock_guard<std::mutex> guard(handles_lock);
    const auto found = handles.find(handle);
    return found != handles.end() && found->second == kind;
}

bool end_of(void *handle, const char *kind) {
    std::lock_guard<std::mutex> guard(handles_lock);
    const auto found = handles.find(handle);
    if (found == handles.end() || found->second != kind)
        return false;
    handles.erase(found);
    return true;
}

constexpr char CONTEXT[] = "context", STREAM[] = "stream", EVENT[] = "event", DEVICE[] = "device memory",
               PINNED[] = "pinned memory", SHARED[] = "shared memory", GRAPH[] = "graph", EXEC[] = "executable graph", MODULE[] = "module";

// --- memory ----------------------------------------------------------------------------------------------------------

constexpr size_t guard_bytes = 256, quarantine_bytes = 256u << 20;
constexpr unsigned char GUARD = 0xA5, FRESH = 0xDB, FREED = 0xDD;

struct Block {
    unsigned char *data;
    size_t size;
    const char *kind;
};

std::recursive_mutex memory_lock;
std::map<uintptr_t, Block> blocks;    // by address
std::deque<Block> quarantine;         // freed, and kept to see who writes into it
size_t device_used = 0, quarantined = 0;
long trespasses = 0;

bool is_all(const unsigned char *from, size_t size, unsigned char value) {
    return size == 0 || (from[0] == value && std::memcmp(from, from + 1, size - 1) == 0);
}

bool is_guarded(const Block &block) {
    return is_all(block.data - guard_bytes, guard_bytes, GUARD) && is_all(block.data + block.size, guard_bytes, GUARD);
}

void *allocate(size_t size, const char *kind) {
    std::lock_guard<std::recursive_mutex> guard(memory_lock);
    const size_t whole = (size + 2 * guard_bytes + 255) / 256 * 256;
    auto *base = static_cast<unsigned char *>(aligned_alloc(256, whole));
    if (!base)
        return nullptr;
    std::memset(base, GUARD, whole);
    std::memset(base + guard_bytes, kind == DEVICE ? FRESH : 0, size);
    const Block block{base + guard_bytes, size, kind};
    blocks[reinterpret_cast<uintptr_t>(block.data)] = block;
    device_used += kind == DEVICE ? size : 0;
    return block.data;
}

void let_go_of_the_oldest() {
    const Block block = quarantine.front();
    quarantine.pop_front();
    quarantined -= block.size;
    trespasses += !is_all(block.data, block.size, FREED) || !is_guarded(block);
    free(block.data - guard_bytes);
}

bool release(uintptr_t address, const char *kind) {
    std::lock_guard<std::recursive_mutex> guard(memory_lock);
    const auto found = blocks.find(address);
    if (found == blocks.end() || found->second.kind != kind)
        return false;
    const Block block = found->second;
    blocks.erase(found);
    device_used -= kind == DEVICE ? block.size : 0;
    trespasses += !is_guarded(block);
    std::memset(block.data - guard_bytes, GUARD, guard_bytes);
    std::memset(block.data + block.size, GUARD, guard_bytes);
    std::memset(block.data, FREED, block.size);
    quarantine.push_back(block);
    quarantined += block.size;
    while (quarantined > quarantine_bytes)
        let_go_of_the_oldest();
    return true;
}

const Block *block_at(uintptr_t address) {
    auto after = blocks.upper_bound(address);
    if (after == blocks.begin())
        return nullptr;
    const Block &block = (--after)->second;
    return address < reinterpret_cast<uintptr_t>(block.data) + block.size ? &block : nullptr;
}

// Memory of others may be anything; in ours an access lies within one block that is not freed.
void check_access(uintptr_t address, size_t size) {
    std::lock_guard<std::recursive_mutex> guard(memory_lock);
    if (const Block *block = block_at(address)) {
        trespasses += address + size > reinterpret_cast<uintptr_t>(block->data) + block->size;
        return;
    }
    for (const Block &block : quarantine) {
        const auto from = reinterpret_cast<uintptr_t>(block.data);
        trespasses += address < from + block.size && address + size > from;
    }
}

size_t memory_of_the_gpu() {
    const char *some = getenv("LOOKOUT_TEST_GPU_MIB");
    return (some ? strtoul(some, nullptr, 10) : 8192) << 20;
}

// --- devices and contexts --------------------------------------------------------------------------------------------

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

struct Context {
    int users = 0;
};

std::mutex contexts_lock;
std::map<CUdevice, Context *> primary;
thread_local Context *current = nullptr;

CUresult in_context() {
    if (!current)
        return static_cast<CUresult>(invalid_context);
    return is_alive(current, CONTEXT) ? CUDA_SUCCESS : static_cast<CUresult>(context_is_destroyed);
}

// --- streams, events, graphs -----------------------------------------------------------------------------------------

using Operation = std::function<void()>;

struct Graph {
    std::vector<Operation> nodes;
};

struct Executable {
    std::vector<Operation> nodes;
    long launches = 0;
};

struct Stream { // never deleted: an event may outlive it
    std::mutex lock;
    std::condition_variable idle;
    bool busy = false;
    std::deque<Operation> waiting;
    long begun = 0, done = 0;
    Graph *capturing = nullptr;
    bool invalidated = false;
};

thread_local Stream *capturing_here = nullptr;

// Enqueue, or record where the stream is captured.
void enqueue(Stream *stream, Operation operation) {
    std::lock_guard<std::mutex> guard(stream->lock);
    if (stream->capturing) {
        stream->capturing->nodes.push_back(std::move(operation));
        return;
    }
    stream->waiting.push_back(std::move(operation));
    ++stream->begun;
}

// One thread at a time runs a stream; false if another does, and this one may not wait for it.
bool run_to(Stream *stream, long end, bool may_wait) {
    std::unique_lock<std::mutex> guard(stream->lock);
    while (stream->done < end) {
        if (stream->busy) {
            if (!may_wait)
                return false;
            stream->idle.wait(guard);
            continue;
        }
        Operation operation = std::move(stream->waiting.front());
        stream->waiting.pop_front();
        stream->busy = true;
        guard.unlock();
        operation();
        guard.lock();
        stream->busy = false;
        ++stream->done;
        stream->idle.notify_all();
    }
    return true;
}

struct Event {
    Stream *stream = nullptr;
    long until = 0;
    int asked = 0;
    bool timed = true;
    double at_ms = -1;
};

double now_ms() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * now.tv_sec + 1e-6 * now.tv_nsec;
}

// What may not happen while this thread captures; it spoils the capture.
CUresult not_while_capturing() {
    if (!capturing_here)
        return CUDA_SUCCESS;
    capturing_here->invalidated = true;
    return static_cast<CUresult>(capture_unsupported);
}

// --- kernels ---------------------------------------------------------------------------------------------------------

// The kernel's arguments are copied when it is launched.
template <typename... A, size_t... I>
Operation bound(void (*kernel)(A...), void **arguments, Index grid, Index block, bool barriers,
                std::index_sequence<I...>) {
    std::tuple<A...> copies{*static_cast<A *>(arguments[I])...};
    return [=] {
        const auto body = [&] { std::apply(kernel, copies); };
        if (barriers)
            launch_with_barriers(grid, body);
        else
            launch(grid, block, body);
    };
}

using Binder = std::function<Operation(void **, Index, Index)>;

template <typename... A> Binder binder(void (*kernel)(A...), bool barriers = false) {
    return [=](void **arguments, Index grid, Index block) {
        return bound(kernel, arguments, grid, block, barriers, std::index_sequence_for<A...>{});
    };
}

#define HEAD(NAME)                                                                                                     \
    {"collect_" #NAME, binder(collect_##NAME)}, { "select_" #NAME, binder(select_##NAME, true) }

const std::map<std::string, Binder> kernels = {
    {"preprocess_f32", binder(preprocess_f32)},
    {"preprocess_f16", binder(preprocess_f16)},
    {"to_bgr", binder(to_bgr)},
    {"masks", binder(masks, true)},
    HEAD(yolov5),
    HEAD(yolov8),
    HEAD(yolox),
    HEAD(end2end),
    HEAD(logits),
    HEAD(shares),
    HEAD(chosen_shares),
    HEAD(decoded),
    HEAD(yolov5_extended),
    HEAD(yolov8_extended),
    HEAD(end2end_extended),
    HEAD(yolov8_turned),
    HEAD(end2end_turned),
};

const std::map<int, const char *> names = {
    {1, "CUDA_ERROR_INVALID_VALUE"},       {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {200, "CUDA_ERROR_INVALID_IMAGE"},     {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {400, "CUDA_ERROR_INVALID_HANDLE"},    {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"},         {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"}, {719, "CUDA_ERROR_LAUNCH_FAILED"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}, {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
};

CUresult code(int value) { return static_cast<CUresult>(value); }
} // namespace

#define CALL                                                                                                           \
    if (const CUresult injected = called(__func__))                                                                    \
    return injected
#define IN_CONTEXT                                                                                                     \
    CALL;                                                                                                              \
    if (const CUresult problem = in_context())                                                                         \
    return problem
#define ALIVE(handle, kind)                                                                                            \
    if (!is_alive(handle, kind))                                                                                       \
    return code(invalid_handle)
#define SYNCHRONOUS                                                                                                    \
    if (const CUresult problem = not_while_capturing())                                                                \
    return problem
// What destroys does so even where it says that something before it has failed.
#define DESTROYS(handle, kind)                                                                                         \
    const CUresult injected = called(__func__);                                                                        \
    if (const CUresult problem = in_context())                                                                         \
        return problem;                                                                                                \
    if (!end_of(handle, kind))                                                                                         \
    return code(invalid_handle)

extern "C" {
// --- for tests -------------------------------------------------------------------------------------------------------

int cuda_alive() {
    std::lock_guard<std::mutex> guard(handles_lock);
    std::lock_guard<std::recursive_mutex> memory(memory_lock);
    return static_cast<int>(handles.size() + blocks.size());
}

// Lines of what there is and how many, into a buffer.
void cuda_report(char *text, size_t size) {
    std::map<std::string, long> found;
    {
        std::lock_guard<std::mutex> guard(handles_lock);
        for (const auto &[handle, kind] : handles)
            ++found[kind];
    }
    std::lock_guard<std::recursive_mutex> guard(memory_lock);
    for (const auto &[address, block] : blocks)
        ++found[block.kind];
    std::string all;
    for (const auto &[kind, count] : found)
        all += kind + ":" + std::to_string(count) + "\n";
    snprintf(text, size, "%s", all.c_str());
}

void cuda_calls(char *text, size_t size) {
    std::lock_guard<std::mutex> guard(calls_lock);
    std::string all;
    for (const auto &[name, count] : counted)
        all += name + ":" + std::to_string(count) + "\n";
    snprintf(text, size, "%s", all.c_str());
}

// From here on calls are counted anew, and the one of this name and number fails; none with 0.
void cuda_fail(const char *name, long number, int with) {
    std::lock_guard<std::mutex> guard(calls_lock);
    counted.clear();
    failing = name, failing_at = number, failing_with = with;
}

// Reads and writes outside of what was allocated, or of what was freed.
long cuda_trespasses() {
    std::lock_guard<std::recursive_mutex> guard(memory_lock);
    long found = trespasses;
    for (const auto &[address, block] : blocks)
        found += !is_guarded(block);
    for (const Block &block : quarantine)
        found += !is_all(block.data, block.size, FREED) || !is_guarded(block);
    return found;
}

size_t cuda_bytes() {
    std::lock_guard<std::recursive_mutex> guard(memory_lock);
    return device_used;
}

long cuda_unlaunched() {
    std::lock_guard<std::mutex> guard(handles_lock);
    long found = 0;
    for (const auto &[handle, kind] : handles)
        found += kind == EXEC && static_cast<Executable *>(handle)->launches == 0;
    return found;
}

// --- devices and contexts --------------------------------------------------------------------------------------------

CUresult cuInit(unsigned) {
    CALL;
    return look(), CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *version) { return *version = 12080, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) {
    CALL;
    return *count = static_cast<int>(visible.size()), CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int number) {
    CALL;
    return *device = visible.at(number), CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid_v2(CUuuid *name, CUdevice device) {
    CALL;
    return *name = name_of(device), CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int size, CUdevice) {
    CALL;
    return strncpy(name, "a stand-in", size), CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice) {
    CALL;
    const char *some = getenv("LOOKOUT_TEST_CAPABILITY");
    const std::string both = some ? some : "9.0";
    const size_t point = both.find('.');
    const bool major = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    return *value = std::stoi(major ? both.substr(0, point) : both.substr(point + 1)), CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(void **context, CUdevice device) {
    CALL;
    std::lock_guard<std::mutex> guard(contexts_lock);
    Context *&found = primary[device];
    if (!found)
        found = new Context, alive(found, CONTEXT);
    ++found->users;
    return *context = found, CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    const CUresult injected = called(__func__);
    std::lock_guard<std::mutex> guard(contexts_lock);
    Context *&found = primary[device];
    if (!found)
        return code(invalid_context);
    if (--found->users == 0)
        end_of(found, CONTEXT), found = nullptr; // its address is not used again, so that whoever has it is found out
    return injected;
}

CUresult cuCtxSetCurrent(void *context) {
    CALL;
    if (context && !is_alive(context, CONTEXT))
        return code(context_is_destroyed);
    return current = static_cast<Context *>(context), CUDA_SUCCESS;
}

// --- memory ----------------------------------------------------------------------------------------------------------

CUresult cuMemGetInfo(size_t *free, size_t *total) {
    IN_CONTEXT;
    std::lock_guard<std::recursive_mutex> guard(memory_lock);
    *total = memory_of_the_gpu();
    return *free = *total - device_used, CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *pointer, size_t size) {
    IN_CONTEXT;
    SYNCHRONOUS;
    std::lock_guard<std::recursive_mutex> guard(memory_lock);
    if (device_used + size > memory_of_the_gpu())
        return code(out_of_memory);
    return *pointer = reinterpret_cast<CUdeviceptr>(allocate(size, DEVICE)), *pointer ? CUDA_SUCCESS : code(2);
}

CUresult cuMemFree(CUdeviceptr pointer) {
    const CUresult injected = called(__func__);
    if (const CUresult problem = in_context())
        return problem;
    SYNCHRONOUS;
    return release(pointer, DEVICE) ? injected : code(invalid_value);
}

CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned) {
    IN_CONTEXT;
    SYNCHRONOUS;
    return *pointer = allocate(size, PINNED), *pointer ? CUDA_SUCCESS : code(out_of_memory);
}

CUresult cuMemFreeHost(void *pointer) {
    const CUresult injected = called(__func__);
    if (const CUresult problem = in_context())
        return problem;
    SYNCHRONOUS;
    return release(reinterpret_cast<uintptr_t>(pointer), PINNED) ? injected : code(invalid_value);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t size, Stream *stream) {
    IN_CONTEXT;
    ALIVE(stream, STREAM);
    const auto from = reinterpret_cast<uintptr_t>(source);
    std::shared_ptr<std::string> own; // of memory that is not pinned the driver takes a copy at once
    {
        std::lock_guard<std::recursive_mutex> guard(memory_lock);
        if (!block_at(from))
            own = std::make_shared<std::string>(static_cast<const char *>(source), size);
    }
    enqueue(stream, [=] {
        check_access(target, size);
        if (!own)
            check_access(from, size);
        memcpy(reinterpret_cast<void *>(target), own ? own->data() : source, size);
    });
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t size, Stream *stream) {
    IN_CONTEXT;
    ALIVE(stream, STREAM);
    enqueue(stream, [=] {
        check_access(source, size);
        check_access(reinterpret_cast<uintptr_t>(target), size);
        memcpy(target, reinterpret_cast<void *>(source), size);
    });
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size, Stream *stream) {
    IN_CONTEXT;
    ALIVE(stream, STREAM);
    enqueue(stream, [=] {
        check_access(source, size);
        check_access(target, size);
        memcpy(reinterpret_cast<void *>(target), reinterpret_cast<void *>(source), size);
    });
    return CUDA_SUCCESS;
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, Stream *stream) {
    IN_CONTEXT;
    ALIVE(stream, STREAM);
    if (copy->srcMemoryType != CU_MEMORYTYPE_DEVICE || copy->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        return code(invalid_value);
    const CUDA_MEMCPY2D rows = *copy;
    char *const to = rows.dstMemoryType == CU_MEMORYTYPE_HOST ? static_cast<char *>(rows.dstHost)
                                                             : reinterpret_cast<char *>(rows.dstDevice);
    enqueue(stream, [=] {
        for (size_t row = 0; row < rows.Height; ++row) {
            const char *from = reinterpret_cast<const char *>(rows.srcDevice) + row * rows.srcPitch;
            check_access(reinterpret_cast<uintptr_t>(from), rows.WidthInBytes);
            check_access(reinterpret_cast<uintptr_t>(to + row * rows.dstPitch), rows.WidthInBytes);
            memcpy(to + row * rows.dstPitch, from, rows.WidthInBytes);
        }
    });
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t size, Stream *stream) {
    IN_CONTEXT;
    ALIVE(stream, STREAM);
    enqueue(stream, [=] {
        check_access(target, size);
        memset(reinterpret_cast<void *>(target), value, size);
    });
    return CUDA_SUCCESS;
}

// Memory that processes share: a file in memory stands for it, and what is mapped is a part of that.
CUresult cuMemGetAllocationGranularity(size_t *size, const void *, int) {
    CALL;
    return *size = 2u << 20, CUDA_SUCCESS;
}

CUresult cuMemCreate(unsigned long long *memory, size_t size, const void *, unsigned long long) {
    IN_CONTEXT;
    const int file = memfd_create("shared", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(size)))
        return code(out_of_memory);
    return *memory = static_cast<unsigned long long>(file), CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(unsigned long long *memory, void *file, int) {
    IN_CONTEXT;
    const int own = dup(static_cast<int>(reinterpret_cast<long>(file)));
    return *memory = static_cast<unsigned long long>(own), own < 0 ? code(invalid_value) : CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *file, unsigned long long memory, int, unsigned long long) {
    IN_CONTEXT;
    return *static_cast<int *>(file) = dup(static_cast<int>(memory)), CUDA_SUCCESS;
}

CUresult cuMemRelease(unsigned long long memory) {
    CALL;
    return close(static_cast<int>(memory)) ? code(invalid_value) : CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t, CUdeviceptr, unsigned long long) {
    IN_CONTEXT;
    void *const found = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return *address = reinterpret_cast<CUdeviceptr>(found), found == MAP_FAILED ? code(out_of_memory) : CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    CALL;
    return munmap(reinterpret_cast<void *>(address), size) ? code(invalid_value) : CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t, unsigned long long memory, unsigned long long) {
    IN_CONTEXT;
    void *const wanted = reinterpret_cast<void *>(address);
    if (mmap(wanted, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, static_cast<int>(memory), 0) == MAP_FAILED)
        return code(out_of_memory);
    return alive(wanted, SHARED), CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    DESTROYS(reinterpret_cast<void *>(address), SHARED);
    mmap(reinterpret_cast<void *>(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return injected;
}

CUresult cuMemSetAccess(CUdeviceptr, size_t, const void *, size_t) {
    CALL;
    return CUDA_SUCCESS;
}

// --- streams and events ----------------------------------------------------------------------------------------------

CUresult cuStreamCreate(void **stream, unsigned) {
    IN_CONTEXT;
    return *stream = alive(new Stream, STREAM), CUDA_SUCCESS;
}

CUresult cuStreamDestroy(void *stream) {
    DESTROYS(stream, STREAM);
    return injected;
}

CUresult cuStreamSynchronize(Stream *stream) {
    IN_CONTEXT;
    ALIVE(stream, STREAM);
    SYNCHRONOUS;
    return run_to(stream, stream->begun, true), CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(Stream *stream, Event *event, unsigned) {
    IN_CONTEXT;
    ALIVE(stream, STREAM);
    ALIVE(event, EVENT);
    if (Stream *other = event->stream; other && other != stream)
        enqueue(stream, [other, until = event->until] { run_to(other, until, true); });
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(void **event, unsigned flags) {
    IN_CONTEXT;
    auto *made = new Event;
    made->timed = !(flags & 2); // CU_EVENT_DISABLE_TIMING
    return *event = alive(made, EVENT), CUDA_SUCCESS;
}

CUresult cuEventDestroy(void *event) { // not deleted: a stream may still come to it
    DESTROYS(event, EVENT);
    return injected;
}

CUresult cuEventRecord(Event *event, Stream *stream) {
    IN_CONTEXT;
    ALIVE(event, EVENT);
    ALIVE(stream, STREAM);
    event->at_ms = -1;
    enqueue(stream, [event] { event->at_ms = now_ms(); });
    event->stream = stream, event->until = stream->begun, event->asked = 0;
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(Event *event) {
    IN_CONTEXT;
    ALIVE(event, EVENT);
    SYNCHRONOUS;
    if (event->stream)
        run_to(event->stream, event->until, true);
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(Event *event) {
    IN_CONTEXT;
    ALIVE(event, EVENT);
    if (!event->stream || event->stream->done >= event->until)
        return CUDA_SUCCESS;
    if (++event->asked >= 3)
        run_to(event->stream, event->until, false);
    return code(not_ready);
}

CUresult cuEventElapsedTime(float *milliseconds, Event *from, Event *to) {
    IN_CONTEXT;
    ALIVE(from, EVENT);
    ALIVE(to, EVENT);
    if (!from->timed || !to->timed || !from->stream || !to->stream)
        return code(invalid_handle);
    if (from->at_ms < 0 || to->at_ms < 0)
        return code(not_ready);
    return *milliseconds = static_cast<float>(to->at_ms - from->at_ms), CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(Stream *stream, void (*function)(void *), void *argument) {
    IN_CONTEXT;
    ALIVE(stream, STREAM);
    return enqueue(stream, [=] { function(argument); }), CUDA_SUCCESS;
}

// --- graphs ----------------------------------------------------------------------------------------------------------

CUresult cuStreamBeginCapture_v2(Stream *stream, int) {
    IN_CONTEXT;
    ALIVE(stream, STREAM);
    if (stream->capturing)
        return code(invalid_value);
    stream->capturing = new Graph, stream->invalidated = false;
    capturing_here = stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(Stream *stream, void **graph) {
    const CUresult injected = called(__func__);
    ALIVE(stream, STREAM);
    if (!stream->capturing)
        return code(invalid_value);
    Graph *made = stream->capturing;
    stream->capturing = nullptr, capturing_here = nullptr;
    if (injected || stream->invalidated) {
        delete made;
        *graph = nullptr;
        return injected ? injected : code(capture_invalidated);
    }
    return *graph = alive(made, GRAPH), CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(void **executable, Graph *graph, unsigned long long) {
    IN_CONTEXT;
    ALIVE(graph, GRAPH);
    return *executable = alive(new Executable{graph->nodes}, EXEC), CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(void **executable, Graph *graph, unsigned long long flags) {
    return cuGraphInstantiateWithFlags(executable, graph, flags);
}

CUresult cuGraphDestroy(void *graph) {
    DESTROYS(graph, GRAPH);
    delete static_cast<Graph *>(graph);
    return injected;
}

CUresult cuGraphLaunch(Executable *executable, Stream *stream) {
    IN_CONTEXT;
    ALIVE(executable, EXEC);
    ALIVE(stream, STREAM);
    ++executable->launches;
    enqueue(stream, [nodes = executable->nodes] {
        for (const Operation &node : nodes)
            node();
    });
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(void *executable) {
    DESTROYS(executable, EXEC);
    delete static_cast<Executable *>(executable);
    return injected;
}

// --- kernels ---------------------------------------------------------------------------------------------------------

CUresult cuModuleLoadData(void **module, const void *image) {
    IN_CONTEXT;
    SYNCHRONOUS;
    if (memcmp(image, "\x7f" "ELF", 4) != 0)
        return code(invalid_image);
    return *module = alive(new char, MODULE), CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(void **function, void *module, const char *name) {
    IN_CONTEXT;
    ALIVE(module, MODULE);
    const auto found = kernels.find(name);
    if (found == kernels.end())
        return code(not_found);
    return *function = const_cast<Binder *>(&found->second), CUDA_SUCCESS;
}

CUresult cuLaunchKernel(Binder *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned, Stream *stream, void **arguments, void **) {
    IN_CONTEXT;
    ALIVE(stream, STREAM);
    const auto index = [](unsigned x, unsigned y, unsigned z) {
        return Index{static_cast<int>(x), static_cast<int>(y), static_cast<int>(z)};
    };
    return enqueue(stream, (*function)(arguments, index(gx, gy, gz), index(bx, by, bz))), CUDA_SUCCESS;
}

CUresult cuModuleUnload(void *module) {
    DESTROYS(module, MODULE);
    delete static_cast<char *>(module);
    return injected;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    CALL;
    const auto found = names.find(error);
    if (found == names.end())
        return *text = nullptr, code(invalid_value);
    return *text = found->second, CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **text) { return cuGetErrorString(error, text); }

// NVRTC asks for one where it finds a driver, and looks at its size before it uses it.
CUresult cuGetExportTable(const void **table, const CUuuid *) {
    static const size_t nothing_but_its_size = sizeof(size_t);
    return *table = &nothing_but_its_size, CUDA_SUCCESS;
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
