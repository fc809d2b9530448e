/* Loads a compiled library and calls its function from C.
 *
 *     python make_library.py linear.so
 *     cc -o call_library call_library.c -ldl
 *     ./call_library ./linear.so
 */
#include "mlc.h"

static DLTensor matrix(float *data, int32_t ndim, int64_t *shape) {
  return mlc_tensor(data, (DLDataType){2, 32, 1}, ndim, shape);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s LIBRARY\n", argv[0]);
    return 2;
  }
  MlcLibrary library = mlc_open(argv[1], 2);
  printf("metadata: %.24s...\n", (const char *)mlc_symbol(&library, "__mlc_metadata"));

  float x[2][3] = {{1, 2, 3}, {-1, 0, 1}}, w[3][2] = {{1, -1}, {0, 2}, {1, 0}}, b[2] = {0.5f, -1}, y[2][2];
  int64_t x_shape[] = {2, 3}, w_shape[] = {3, 2}, b_shape[] = {2}, y_shape[] = {2, 2};
  DLTensor tensors[] = {matrix(*x, 2, x_shape), matrix(*w, 2, w_shape), matrix(b, 1, b_shape), matrix(*y, 2, y_shape)};
  DLTensor *const args[] = {&tensors[0], &tensors[1], &tensors[2], &tensors[3]};
  if (mlc_call(&library, "main", args, 4)) {
    fprintf(stderr, "error: %s\n", mlc_error(&library));
    return 1;
  }
  for (int i = 0; i < 2; i++) printf("y[%d] = %g %g\n", i, y[i][0], y[i][1]);

  y_shape[0] = 3; /* every argument is checked */
  if (mlc_call(&library, "main", args, 4)) printf("refused: %s\n", mlc_error(&library));
  return mlc_close(&library);
}
