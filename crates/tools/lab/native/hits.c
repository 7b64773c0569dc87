// Functions with the entry blocks that matter to a uprobe, and a loop that calls them.
//
// Reads lines "NAME CALLS" until its input ends. Answers each with the nanoseconds for that many
// calls. With a library as argument, NAME can also be one of its functions.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

// Each function sets up a frame and returns. Only the first instruction differs. The label hit_NAME
// marks the instruction to probe.
#define FORM(name, body) \
  __asm__(".text\n.p2align 4\n.globl form_" name "\n.type form_" name ", @function\nform_" name ":\n" body \
          ".size form_" name ", .-form_" name "\n")

#if defined(__x86_64__)
FORM("push", ".globl hit_push\nhit_push: push %rbp\nmov %rsp, %rbp\npop %rbp\nret\n");
FORM("nop5", ".globl hit_nop5\nhit_nop5: .byte 0x0f,0x1f,0x44,0x00,0x00\npush %rbp\nmov %rsp, %rbp\npop %rbp\nret\n");
FORM("endbr", ".globl hit_endbr\nhit_endbr: .byte 0xf3,0x0f,0x1e,0xfa\npush %rbp\nmov %rsp, %rbp\npop %rbp\nret\n");
FORM("mov", ".globl hit_mov\nhit_mov: mov %rdi, %rax\npush %rbp\nmov %rsp, %rbp\npop %rbp\nret\n");
FORM("sub", ".globl hit_sub\nhit_sub: sub $8, %rsp\nadd $8, %rsp\npush %rbp\npop %rbp\nret\n");
// A conditional jump after a test, as in functions that begin with a guard.
FORM("jump", "test %rdi, %rdi\n.globl hit_jump\nhit_jump: je 1f\n1: push %rbp\nmov %rsp, %rbp\npop %rbp\nret\n");
FORM("ret", "push %rbp\nmov %rsp, %rbp\npop %rbp\n.globl hit_ret\nhit_ret: ret\n");
FORM("return", ".globl hit_return\nhit_return: push %rbp\nmov %rsp, %rbp\npop %rbp\nret\n");
#elif defined(__aarch64__)
FORM("push", ".globl hit_push\nhit_push: stp x29, x30, [sp, #-16]!\nldp x29, x30, [sp], #16\nret\n");
FORM("nop5", ".globl hit_nop5\nhit_nop5: nop\nret\n");
FORM("endbr", ".globl hit_endbr\nhit_endbr: hint #34\nret\n");
FORM("mov", ".globl hit_mov\nhit_mov: mov x9, x0\nret\n");
FORM("sub", ".globl hit_sub\nhit_sub: sub sp, sp, #16\nadd sp, sp, #16\nret\n");
FORM("jump", ".globl hit_jump\nhit_jump: cbz x0, 1f\n1: ret\n");
FORM("ret", ".globl hit_ret\nhit_ret: ret\n");
FORM("return", ".globl hit_return\nhit_return: nop\nret\n");
#else
#error "no forms for this machine"
#endif

typedef void (*form)(void *, void *, int64_t, int64_t, void *, void *);
#define DECLARE(name) extern void form_##name(void *, void *, int64_t, int64_t, void *, void *);
DECLARE(push) DECLARE(nop5) DECLARE(endbr) DECLARE(mov) DECLARE(sub) DECLARE(jump) DECLARE(ret) DECLARE(return)

static const struct { const char *name; form call; } forms[] = {
    {"push", form_push}, {"nop5", form_nop5}, {"endbr", form_endbr}, {"mov", form_mov},
    {"sub", form_sub}, {"jump", form_jump}, {"ret", form_ret}, {"return", form_return},
};

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv) {
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
  if (argc > 1 && !library) {
    fprintf(stderr, "hits: %s\n", dlerror());
    return 1;
  }
  char name[128];
  long calls;
  while (scanf("%127s %ld", name, &calls) == 2) {
    form call = NULL;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
      if (strcmp(forms[i].name, name) == 0) call = forms[i].call;
    if (!call && library) call = (form)dlsym(library, name);
    if (!call) {
      fprintf(stderr, "hits: no form '%s'\n", name);
      return 1;
    }
    int64_t start = now_ns();
    for (long i = 0; i < calls; i++) call((void *)&calls, (void *)"text", 1, 1, (void *)"more", (void *)&calls);
    printf("%lld\n", (long long)(now_ns() - start));
    fflush(stdout);
  }
  return 0;
}
