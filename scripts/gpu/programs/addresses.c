// Which exported symbol of the driver does cuGetProcAddress_v2 return, for every name, version and flag?
//
//   addresses NAMES LIBCUDA      (NAMES: one exported symbol a line)
//
// Prints CSV: `symbol,name,version,flags` for the first (name, version, flags) that returns each address. `symbol` is
// the exported symbol that has the address, or `-` where none has it. Then, as comments, what was counted.
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>

#define MAX_SYMBOLS 4096

typedef CUresult (*GetProcAddress)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static struct {
  char name[128];
  void *address;
  int reached;
} symbols[MAX_SYMBOLS];
static int count;

static const int versions[] = {2000, 2010, 2020, 2030, 3000, 3010, 3020, 4000, 4010, 4020, 5000, 5050, 6000, 6050, 7000, 7050,
                               8000, 9000, 9010, 9020, 10000, 10010, 10020, 11000, 11010, 11020, 11030, 11040, 11050, 11060,
                               11070, 11080, 12000, 12010, 12020, 12030, 12040, 12050, 12060, 12080, 12090, 13000};

static void strip(char *name) {
  static const char *const suffixes[] = {"_ptsz", "_ptds", "_v2", "_v3", "_v4"};
  for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
    size_t n = strlen(name), s = strlen(suffixes[i]);
    if (n > s && strcmp(name + n - s, suffixes[i]) == 0) name[n - s] = 0;
  }
}

static int exported(void *address) {
  for (int i = 0; i < count; i++)
    if (symbols[i].address == address) return i;
  return -1;
}

int main(int argc, char **argv) {
  if (argc != 3) return fprintf(stderr, "usage: addresses NAMES LIBCUDA\n"), 2;
  void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
  FILE *names = fopen(argv[1], "r");
  if (!library || !names) return fprintf(stderr, "addresses: cannot open %s or %s\n", argv[1], argv[2]), 1;
  GetProcAddress lookup = (GetProcAddress)dlsym(library, "cuGetProcAddress_v2");
  if (!lookup) return fprintf(stderr, "addresses: no cuGetProcAddress_v2\n"), 1;
  CHECK(cuInit(0));
  while (count < MAX_SYMBOLS && fscanf(names, "%127s", symbols[count].name) == 1) {
    symbols[count].address = dlsym(library, symbols[count].name);
    count += symbols[count].address != NULL;
  }

  long found = 0, same = 0;
  void *unexported[MAX_SYMBOLS];
  int strangers = 0;
  printf("symbol,name,version,flags\n");
  for (int i = 0; i < count; i++) {
    char base[128];
    strcpy(base, symbols[i].name);
    strip(base);
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
      for (int flags = 0; flags <= 2; flags++) {
        void *address = NULL;
        CUdriverProcAddressQueryResult status;
        if (lookup(base, &address, versions[v], (cuuint64_t)flags, &status) != CUDA_SUCCESS || !address) continue;
        found++;
        int s = exported(address);
        if (s >= 0) {
          same++;
          if (!symbols[s].reached) printf("%s,%s,%d,%d\n", symbols[s].name, base, versions[v], flags);
          symbols[s].reached = 1;
        } else {
          int k = 0;
          while (k < strangers && unexported[k] != address) k++;
          if (k == strangers && strangers < MAX_SYMBOLS) {
            unexported[strangers++] = address;
            printf("-,%s,%d,%d\n", base, versions[v], flags);
          }
        }
      }
    }
  }
  int reached = 0;
  for (int i = 0; i < count; i++) reached += symbols[i].reached;
  printf("# lookups answered: %ld; with the address of an exported symbol: %ld; distinct other addresses: %d\n", found, same, strangers);
  printf("# exported symbols: %d; reached: %d; not reached:", count, reached);
  for (int i = 0; i < count; i++)
    if (!symbols[i].reached) printf(" %s", symbols[i].name);
  printf("\n");
  return 0;
}
