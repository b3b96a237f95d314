// A tool for NVTX, which loads it where NVTX_INJECTION64_PATH names it: writes each range to the file LOOKOUT_TEST_NVTX.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const char *message;  // of a registered string: what registered() returned
};
static_assert(sizeof(Attributes) == 48);

struct Callbacks {
  size_t size;
  int (*table_of)(int module, void ****table, unsigned *count);
};

enum { kCallbacks = 1, kCore2 = 5, kPush = 4, kPop = 5, kRegister = 10, kCreate = 12 };

thread_local int depth = 0;

void write(const char *what, const char *name) {
  static FILE *file = fopen(getenv("LOOKOUT_TEST_NVTX"), "a");
  fprintf(file, "%s %d %s\n", what, depth, name);
  fflush(file);
}

const char *created(const char *name) { return strdup(name); }
const char *registered(const char *, const char *text) { return strdup(text); }
int push(const char *domain, const Attributes *attributes) {
  char name[200];
  snprintf(name, sizeof name, "%s: %s", domain, attributes->message);
  write("begin", name);
  return depth++;
}
int pop(const char *domain) {
  depth--;
  write("end", domain);
  return depth;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(const void *(*tables)(uint32_t)) {
  auto *callbacks = static_cast<const Callbacks *>(tables(kCallbacks));
  void ***slots = nullptr;
  unsigned count = 0;
  if (!callbacks || !callbacks->table_of(kCore2, &slots, &count) || count <= kCreate) return 0;
  *slots[kPush] = reinterpret_cast<void *>(push);
  *slots[kPop] = reinterpret_cast<void *>(pop);
  *slots[kRegister] = reinterpret_cast<void *>(registered);
  *slots[kCreate] = reinterpret_cast<void *>(created);
  return 1;
}
