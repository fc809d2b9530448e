/* Calls of compiled libraries from C: no Python, no runtime library, only dlopen.
 *
 * A library exports, for every function NAME, __tvm_ffi_NAME in the TVM FFI ABI, and
 *   __tvm_ffi_context_create(num_threads) -> handle, __tvm_ffi_context_destroy(handle)
 *   __mlc_metadata      JSON: the functions with their arguments, in order
 *   __mlc_last_error    the message of this thread's last call that returned nonzero
 * A function takes the context's handle, its inputs and its outputs, all allocated by the caller.
 */
#ifndef MLC_H
#define MLC_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { MLC_MAX_ARGUMENTS = 16, MLC_MAX_SYMBOL = 512 };

/* From dlpack.h: a data type, and a view of a dense array. */
typedef struct {
  uint8_t code, bits; /* code 0: signed, 1: unsigned integer, 2: float, 4: bfloat16 */
  uint16_t lanes;
} DLDataType;

typedef struct {
  void *data;
  struct { int32_t type, id; } device; /* type 1: CPU */
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* NULL: row-major without gaps */
  uint64_t byte_offset;
} DLTensor;

/* From tvm/ffi/c_api.h: an argument or result. */
typedef struct {
  int32_t type_index; /* 0: none, 1: integer, 3: float, 7: DLTensor* */
  uint32_t padding;
  union { int64_t as_int; double as_float; void *as_pointer; };
} TVMFFIAny;

typedef int (*MlcFunction)(void *self, const TVMFFIAny *args, int32_t count, TVMFFIAny *result);

/* A loaded library with a context: worker threads and a workspace. One call at a time. */
typedef struct {
  void *handle;
  TVMFFIAny context;
} MlcLibrary;

/* The address of a symbol. Ends the program if there is none. */
static inline void *mlc_symbol(const MlcLibrary *library, const char *name) {
  void *symbol = dlsym(library->handle, name);
  if (!symbol) {
    fprintf(stderr, "no symbol %s: %s\n", name, dlerror());
    exit(1);
  }
  return symbol;
}

/* The message of this thread's last call that failed. */
static inline const char *mlc_error(const MlcLibrary *library) {
  return (const char *)mlc_symbol(library, "__mlc_last_error");
}

/* Call a function of the library; returns nonzero if it fails, see mlc_error. */
static inline int mlc_call(const MlcLibrary *library, const char *name, DLTensor *const *tensors, int count) {
  TVMFFIAny args[MLC_MAX_ARGUMENTS + 1] = {library->context}, nothing;
  char symbol[MLC_MAX_SYMBOL];
  snprintf(symbol, sizeof symbol, "__tvm_ffi_%s", name);
  for (int i = 0; i < count; i++) args[i + 1] = (TVMFFIAny){.type_index = 7, .as_pointer = tensors[i]};
  return ((MlcFunction)mlc_symbol(library, symbol))(NULL, args, count + 1, &nothing);
}

/* Load the library in a file. Ends the program if that fails. */
static inline MlcLibrary mlc_open(const char *path, int num_threads) {
  MlcLibrary library = {.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
  if (!library.handle) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  TVMFFIAny threads = {.type_index = 1, .as_int = num_threads};
  if (((MlcFunction)mlc_symbol(&library, "__tvm_ffi_context_create"))(NULL, &threads, 1, &library.context)) {
    fprintf(stderr, "error: %s\n", mlc_error(&library));
    exit(1);
  }
  return library;
}

/* Stop the library's threads and free its workspace; returns nonzero while a call runs. */
static inline int mlc_close(const MlcLibrary *library) {
  TVMFFIAny nothing;
  return ((MlcFunction)mlc_symbol(library, "__tvm_ffi_context_destroy"))(NULL, &library->context, 1, &nothing);
}

static inline DLTensor mlc_tensor(void *data, DLDataType dtype, int32_t ndim, int64_t *shape) {
  return (DLTensor){.data = data, .device = {1, 0}, .ndim = ndim, .dtype = dtype, .shape = shape};
}

#endif
