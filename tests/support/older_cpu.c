/* A processor that knows less, for libraries whose `cpuid` instructions older_cpu.py has made `ud2`: loaded before all
 * others, it answers them in a handler of SIGILL. LOOKOUT_OLDER_CPU says what is left: avx2, avx or sse4. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define BIT(number) (1u << (number))

typedef int (*Sigaction)(int, const struct sigaction *, struct sigaction *);
typedef struct {
  unsigned a, b, c, d;
} Answer;

static Sigaction next_sigaction;
static int has_avx2 = 1, has_avx = 1;

static void reduce(unsigned leaf, unsigned part, Answer *answer) {
  if (leaf == 1 && !has_avx2) answer->c &= ~(BIT(12) | BIT(29));            /* FMA, F16C */
  if (leaf == 1 && !has_avx) answer->c &= ~(BIT(26) | BIT(27) | BIT(28));   /* XSAVE, OSXSAVE, AVX */
  if (leaf == 7 && part == 0 && !has_avx2) answer->b &= ~(BIT(3) | BIT(5) | BIT(8)); /* BMI1, AVX2, BMI2 */
  if (leaf == 7 && part == 0) {                                             /* AVX-512 in all its parts, VAES, AMX */
    answer->b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
    answer->c &= ~(BIT(1) | BIT(6) | BIT(8) | BIT(9) | BIT(10) | BIT(11) | BIT(12) | BIT(14));
    answer->d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
  }
  if (leaf == 7 && part == 1) *answer = (Answer){0, 0, 0, 0};               /* AVX-VNNI and what came after it */
}

static void on_illegal(int number, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *instruction = (const unsigned char *)registers[REG_RIP];
  (void)info;
  if (instruction[0] != 0x0f || instruction[1] != 0x0b) { /* another, which is a mistake of somebody's */
    signal(number, SIG_DFL);
    return;
  }
  unsigned leaf = (unsigned)registers[REG_RAX], part = (unsigned)registers[REG_RCX];
  Answer answer;
  __cpuid_count(leaf, part, answer.a, answer.b, answer.c, answer.d);
  reduce(leaf, part, &answer);
  registers[REG_RAX] = answer.a;
  registers[REG_RBX] = answer.b;
  registers[REG_RCX] = answer.c;
  registers[REG_RDX] = answer.d;
  registers[REG_RIP] += 2;
}

__attribute__((constructor)) static void begin(void) {
  const char *left = getenv("LOOKOUT_OLDER_CPU");
  has_avx2 = !left || strcmp(left, "avx2") == 0;
  has_avx = has_avx2 || strcmp(left, "avx") == 0;
  next_sigaction = (Sigaction)dlsym(RTLD_NEXT, "sigaction");
  struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO | SA_NODEFER};
  next_sigaction(SIGILL, &action, NULL);
}

/* Nobody else handles this signal, as pytest's faulthandler would. */
int sigaction(int number, const struct sigaction *action, struct sigaction *before) {
  if (!next_sigaction) next_sigaction = (Sigaction)dlsym(RTLD_NEXT, "sigaction");
  return next_sigaction(number, number == SIGILL ? NULL : action, before);
}
