/* Launches kernels from a second thread, and ends the process in a way while calls wait:
 * `endings WAY LAUNCHES`. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*launcher)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                        void **, void **);

static const char *way;
static int launches;
static void *context, *function;
static void *library;

static void *address(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        abort();
    }
    return found;
}

static void check(int result) {
    if (result) {
        fprintf(stderr, "a call returned %d\n", result);
        abort();
    }
}

static int is(const char *name) { return !strcmp(way, name); }

static void handler(int signal) { _exit(signal == SIGUSR1 ? 0 : 1); }

/* A child that shares this process's memory, and ends before any call of its parent's is made. */
static void vforked(void) {
    pid_t child = vfork();
    if (child == 0) {
        execl("/no/such/program", "none", (char *)0);
        _exit(9);
    }
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 9) abort();
}

static void leave(void) {
    char *arguments[] = {"sh", "-c", "exit $0$1$2$3", "0", "0", "0", "0", NULL};
    char *environment[] = {"PATH=/bin:/usr/bin", NULL};
    if (is("_exit")) _exit(0);
    if (is("_Exit")) _Exit(0);
    if (is("quick_exit")) quick_exit(0);
    if (is("exit")) exit(0);
    if (is("handler")) raise(SIGUSR1);
    if (is("execl")) execl("/bin/sh", "sh", "-c", "exit $0$1$2$3", "0", "0", "0", "0", (char *)0);
    if (is("execlp")) execlp("sh", "sh", "-c", "exit $0$1$2$3", "0", "0", "0", "0", (char *)0);
    if (is("execle")) execle("/bin/sh", "sh", "-c", "exit $0$1$2$3", "0", "0", "0", "0", (char *)0, environment);
    if (is("execv")) execv("/bin/sh", arguments);
    if (is("execve")) execve("/bin/sh", arguments, environment);
    if (is("execvp")) execvp("sh", arguments);
    if (is("execvpe")) execvpe("sh", arguments, environment);
    if (is("fexecve")) fexecve(open("/bin/sh", O_RDONLY), arguments, environment);
    if (is("exec-fails")) {
        execl("/no/such/program", "none", (char *)0);
        exit(0);
    }
    if (is("vfork")) {
        vforked();
        _exit(0);
    }
    if (is("kill")) kill(getpid(), SIGKILL);
    if (is("terminate")) raise(SIGTERM);
    if (is("system-call")) syscall(SYS_exit_group, 0);
}

static void *work(void *unused) {
    int (*set)(void *) = address("cuCtxSetCurrent");
    launcher launch = (launcher)address("cuLaunchKernel");
    check(set(context));
    for (int made = 0; made < launches; made++)
        check(launch(function, 7, 1, 1, 128, 1, 1, 0, (void *)0, (void **)0, (void **)0));
    leave();
    if (is("thread-system-call")) syscall(SYS_exit, 0);
    return unused;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    way = words[1];
    launches = atoi(words[2]);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 3;
    signal(SIGUSR1, handler);
    void *module;
    check(((int (*)(unsigned))address("cuInit"))(0));
    check(((int (*)(void **, unsigned, int))address("cuCtxCreate_v2"))(&context, 0, 0));
    check(((int (*)(void **, const void *))address("cuModuleLoadData"))(&module, "one_100"));
    check(((int (*)(void **, void *, const char *))address("cuModuleGetFunction"))(&function, module, "one_100"));
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    if (is("main-pthread-exit")) {
        pthread_detach(thread);
        pthread_exit(NULL);
    }
    if (is("main-system-call") || is("thread-system-call")) syscall(SYS_exit, 0);
    pthread_join(thread, NULL);
    return 0;
}
