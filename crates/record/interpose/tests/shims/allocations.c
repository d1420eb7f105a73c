/* Counts what libapex.so allocates, and lets it fail: everything from the FAIL_FROM-th allocation on, or only the FAIL_ONLY-th.
   Nobody else's allocations are touched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);

static unsigned long from, to, count, fail_from = -1, fail_only = -1;

static int look(struct dl_phdr_info *info, size_t size, void *data) {
    if (!strstr(info->dlpi_name, "libapex.so"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            unsigned long start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            if (!from)
                from = start;
            to = start + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

__attribute__((constructor)) static void start(void) {
    dl_iterate_phdr(look, 0);
    if (getenv("FAIL_FROM"))
        fail_from = strtoul(getenv("FAIL_FROM"), 0, 10);
    if (getenv("FAIL_ONLY"))
        fail_only = strtoul(getenv("FAIL_ONLY"), 0, 10);
}

unsigned long shim_allocations(void) { return count; }

static int fails(void *caller) {
    if ((unsigned long)caller < from || (unsigned long)caller >= to)
        return 0;
    unsigned long at = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    if (at < fail_from && at != fail_only)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) { return fails(__builtin_return_address(0)) ? 0 : __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return fails(__builtin_return_address(0)) ? 0 : __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return fails(__builtin_return_address(0)) ? 0 : __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { return fails(__builtin_return_address(0)) ? 0 : __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { return fails(__builtin_return_address(0)) ? 0 : __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
    if (fails(__builtin_return_address(0)))
        return ENOMEM;
    return (*p = __libc_memalign(a, n)) ? 0 : ENOMEM;
}
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    if (fails(__builtin_return_address(0)))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}
