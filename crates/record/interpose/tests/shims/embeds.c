/* A program that opens a libpython for itself alone (RTLD_LOCAL), and launches from the interpreter in it:
   embeds LIBPYTHON PROGRAM, where the program's function `launch` makes a launch. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *pointer;
typedef struct { const char *name; pointer (*function)(pointer, pointer); int flags; const char *documentation; } method;
extern unsigned cuInit(unsigned), cuCtxCreate_v2(pointer *, unsigned, int), cuModuleLoadData(pointer *, const char *),
    cuModuleGetFunction(pointer *, pointer, const char *),
    cuLaunchKernel(pointer, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, pointer, pointer *, pointer *);

static pointer python, function;

static pointer symbol(const char *name) {
    pointer found = dlsym(python, name);
    if (!found) {
        puts(dlerror());
        exit(1);
    }
    return found;
}

static pointer launch(pointer self, pointer arguments) {
    if (cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0)) exit(2);
    return ((pointer (*)(long))symbol("PyLong_FromLong"))(0);
}

int main(int count, char **words) {
    static method definition = {"launch", launch, 4 /* METH_NOARGS */, 0};
    pointer context, module, object, main_module;
    if (count != 3) return 3;
    python = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (!python) {
        puts(dlerror());
        return 5;
    }
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0) || cuModuleLoadData(&module, "embedded_100")) return 4;
    if (cuModuleGetFunction(&function, module, "embedded_100")) return 4;
    ((void (*)(void))symbol("Py_Initialize"))();
    object = ((pointer (*)(method *, pointer, pointer))symbol("PyCFunction_NewEx"))(&definition, 0, 0);
    main_module = ((pointer (*)(const char *))symbol("PyImport_AddModule"))("__main__");
    if (((int (*)(pointer, const char *, pointer))symbol("PyObject_SetAttrString"))(main_module, "launch", object)) return 6;
    return ((int (*)(const char *))symbol("PyRun_SimpleString"))(words[2]) ? 7 : 0;
}
