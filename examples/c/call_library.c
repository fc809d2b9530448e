/* Loads a compiled library and calls its function from C: no Python, no runtime library, only dlopen.
 *
 *     python make_library.py linear.so
 *     cc -o call_library call_library.c -ldl
 *     ./call_library ./linear.so
 *
 * A library exports, for every function NAME, __tvm_ffi_NAME in the TVM FFI ABI, and
 *   __tvm_ffi_context_create(num_threads) -> handle, __tvm_ffi_context_destroy(handle)
 *   __mlc_metadata      JSON: the functions with their arguments, in order
 *   __mlc_last_error    the message of this thread's last call that returned nonzero
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From dlpack.h: a view of a dense array. */
typedef struct {
  void *data;
  struct { int32_t type, id; } device;          /* type 1: CPU */
  int32_t ndim;
  struct { uint8_t code, bits; uint16_t lanes; } dtype; /* code 0: signed, 1: unsigned integer, 2: float */
  int64_t *shape;
  int64_t *strides;                             /* NULL: row-major without gaps */
  uint64_t byte_offset;
} DLTensor;

/* From tvm/ffi/c_api.h: an argument or result. */
typedef struct {
  int32_t type_index;                           /* 0: none, 1: integer, 3: float, 7: DLTensor* */
  uint32_t padding;
  union { int64_t as_int; double as_float; void *as_pointer; };
} TVMFFIAny;

typedef int (*Function)(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result);

static void *library;

static void *find(const char *name) {
  void *symbol = dlsym(library, name);
  if (!symbol) {
    fprintf(stderr, "no symbol %s: %s\n", name, dlerror());
    exit(1);
  }
  return symbol;
}

static TVMFFIAny integer(int64_t value) {
  return (TVMFFIAny){.type_index = 1, .as_int = value};
}

static TVMFFIAny tensor(DLTensor *t) {
  return (TVMFFIAny){.type_index = 7, .as_pointer = t};
}

static DLTensor matrix(float *data, int32_t ndim, int64_t *shape) {
  return (DLTensor){.data = data, .device = {1, 0}, .ndim = ndim, .dtype = {2, 32, 1}, .shape = shape};
}

int main(int argc, char **argv) {
  if (argc != 2 || !(library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL))) {
    fprintf(stderr, "usage: %s LIBRARY (%s)\n", argv[0], argc == 2 ? dlerror() : "no library given");
    return 2;
  }
  printf("metadata: %.24s...\n", (const char *)find("__mlc_metadata"));
  TVMFFIAny threads = integer(2), context;
  if (((Function)find("__tvm_ffi_context_create"))(NULL, &threads, 1, &context)) {
    fprintf(stderr, "error: %s\n", (const char *)find("__mlc_last_error"));
    return 1;
  }

  float x[2][3] = {{1, 2, 3}, {-1, 0, 1}}, w[3][2] = {{1, -1}, {0, 2}, {1, 0}}, b[2] = {0.5f, -1}, y[2][2];
  int64_t x_shape[] = {2, 3}, w_shape[] = {3, 2}, b_shape[] = {2}, y_shape[] = {2, 2};
  DLTensor tensors[] = {matrix(*x, 2, x_shape), matrix(*w, 2, w_shape), matrix(b, 1, b_shape), matrix(*y, 2, y_shape)};
  TVMFFIAny args[5] = {context}, nothing;
  for (int i = 0; i < 4; i++) args[i + 1] = tensor(&tensors[i]);

  Function run = (Function)find("__tvm_ffi_main");
  if (run(NULL, args, 5, &nothing)) {
    fprintf(stderr, "error: %s\n", (const char *)find("__mlc_last_error"));
    return 1;
  }
  for (int i = 0; i < 2; i++) printf("y[%d] = %g %g\n", i, y[i][0], y[i][1]);

  y_shape[0] = 3; /* every argument is checked */
  if (run(NULL, args, 5, &nothing)) printf("refused: %s\n", (const char *)find("__mlc_last_error"));

  return ((Function)find("__tvm_ffi_context_destroy"))(NULL, &context, 1, &nothing);
}
