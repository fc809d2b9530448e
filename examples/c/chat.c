/* A conversation with a compiled model from C: token ids in, token ids out.
 *
 *     python describe_model.py DIR > model.txt
 *     cc -O2 -o chat chat.c -ldl
 *     python tokens.py DIR "What is the capital of France?" | ./chat DIR model.txt | python tokens.py DIR
 *
 * Each line of the input has the token ids that are appended to the conversation; the output has the ids of the answer,
 * the most likely ones, on a line. The token that ends an answer is printed and is a part of the conversation. DIR is a
 * model folder for this CPU, as convert_weight, gen_config and compile write it, of a decoder with keys and values of
 * one kind (Llama, SmolLM2, Qwen 3); model.txt lists its sizes and weights, see describe_model.py.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mlc.h"

enum { MAX_DIMENSIONS = 8, MAX_FILES = 256, MAX_STOPS = 64, NAME = 256, PATH = 4096, ALIGNMENT = 64 };
static const DLDataType FLOAT32 = {2, 32, 1}, INT32 = {0, 32, 1}, INT64 = {0, 64, 1};

typedef struct {
  DLTensor view;
  int64_t shape[MAX_DIMENSIONS];
} Tensor;

typedef struct {
  char name[NAME];
  char *data;
} File;

typedef struct {
  MlcLibrary library;
  int64_t vocab, context, chunk, num_params, num_stops, stops[MAX_STOPS];
  Tensor hidden, k_pages, v_pages, page_table, params; /* hidden: dtype and size of an embedding [size] */
  int64_t length;                                      /* tokens of the conversation */
  float *logits;                                       /* [vocab], after the last token */
} Model;

static void fail(const char *what, const char *why) {
  fprintf(stderr, "error: %s: %s\n", what, why);
  exit(1);
}

static void *allocate(size_t nbytes) {
  void *data = aligned_alloc(ALIGNMENT, (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  if (!data) fail("allocation", "not enough memory");
  return data;
}

static int64_t size_of(const DLTensor *t) {
  int64_t nbytes = (t->dtype.bits + 7) / 8;
  for (int i = 0; i < t->ndim; i++) nbytes *= t->shape[i];
  return nbytes;
}

static DLTensor *of_shape(Tensor *t, void *data, DLDataType dtype, int ndim, const int64_t *shape) {
  memcpy(t->shape, shape, ndim * sizeof *shape);
  t->view = mlc_tensor(data, dtype, ndim, t->shape);
  return &t->view;
}

/* -- model.txt ------------------------------------------------------------------------------------------------------ */

static int64_t read_integer(FILE *file) {
  long long value;
  if (fscanf(file, "%lld", &value) != 1) fail("model.txt", "expected a number");
  return value;
}

static void read_name(FILE *file, char name[NAME]) {
  if (fscanf(file, "%255s", name) != 1) fail("model.txt", "expected a name");
}

/* Read a data type's code and bits, the number of dimensions and the dimensions. */
static DLTensor *read_tensor(FILE *file, Tensor *t) {
  DLDataType dtype = {.lanes = 1};
  dtype.code = (uint8_t)read_integer(file), dtype.bits = (uint8_t)read_integer(file);
  int64_t ndim = read_integer(file), shape[MAX_DIMENSIONS];
  if (ndim < 0 || ndim > MAX_DIMENSIONS) fail("model.txt", "too many dimensions");
  for (int i = 0; i < ndim; i++) shape[i] = read_integer(file);
  return of_shape(t, NULL, dtype, (int)ndim, shape);
}

/* -- weights -------------------------------------------------------------------------------------------------------- */

/* The content of a file of the folder, mapped once. */
static char *mapped(const char *folder, const char *name) {
  static File files[MAX_FILES];
  int i = 0;
  while (i < MAX_FILES && files[i].data && strcmp(files[i].name, name)) i++;
  if (i == MAX_FILES) fail(name, "too many files");
  if (files[i].data) return files[i].data;
  char path[PATH];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  struct stat status;
  int file = open(path, O_RDONLY);
  if (file < 0 || fstat(file, &status)) fail(path, "cannot be read");
  files[i].data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  if (files[i].data == MAP_FAILED) fail(path, "cannot be mapped");
  close(file);
  snprintf(files[i].name, NAME, "%s", name);
  return files[i].data;
}

static void run(Model *m, const char *function, DLTensor *const *tensors, int count) {
  if (mlc_call(&m->library, function, tensors, count)) fail(function, mlc_error(&m->library));
}

/* Read a weight: its file and place, and, if kernels read another layout, the function that packs it. */
static void *read_weight(Model *m, FILE *index, const char *folder) {
  char file[NAME], pack[NAME];
  Tensor stored, packed;
  read_name(index, file);
  int64_t offset = read_integer(index);
  read_tensor(index, &stored)->data = mapped(folder, file) + offset;
  read_name(index, pack);
  if (!strcmp(pack, "-")) return stored.view.data;
  read_tensor(index, &packed);
  packed.view.data = allocate((size_t)size_of(&packed.view));
  run(m, pack, (DLTensor *const[]){&stored.view, &packed.view}, 2);
  return packed.view.data;
}

/* Read the pages of keys or of values, [layers, 0, heads, ...], and allocate them for a whole context; the system
 * provides memory at the first write. */
static void read_pages(FILE *index, Tensor *pages, int64_t num_pages) {
  DLTensor *view = read_tensor(index, pages);
  pages->shape[1] = num_pages;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  view->data = mmap(NULL, (size_t)size_of(view), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (view->data == MAP_FAILED) fail("keys and values", "not enough memory");
}

static void load(Model *m, const char *folder, const char *path) {
  char library[PATH];
  snprintf(library, sizeof library, "%s/lib.so", folder);
  m->library = mlc_open(library, 2);
  FILE *index = fopen(path, "r");
  if (!index) fail(path, "cannot be read");
  m->vocab = read_integer(index), m->context = read_integer(index), m->chunk = read_integer(index);
  if ((m->num_stops = read_integer(index)) > MAX_STOPS) fail(path, "too many end tokens");
  for (int i = 0; i < m->num_stops; i++) m->stops[i] = read_integer(index);
  read_tensor(index, &m->hidden);
  int64_t page_size = read_integer(index), pages = (m->context + page_size - 1) / page_size;
  read_pages(index, &m->k_pages, pages);
  read_pages(index, &m->v_pages, pages);
  int32_t *table = allocate((size_t)pages * sizeof *table);
  for (int32_t i = 0; i < pages; i++) table[i] = i;
  of_shape(&m->page_table, table, INT32, 2, (int64_t[]){1, pages});
  int64_t count = read_integer(index), *addresses = allocate((size_t)count * sizeof *addresses);
  of_shape(&m->params, addresses, INT64, 1, &count);
  for (int i = 0; i < count; i++) addresses[i] = (int64_t)(intptr_t)read_weight(m, index, folder);
  m->logits = allocate((size_t)m->vocab * sizeof(float));
  fclose(index);
}

/* -- conversation --------------------------------------------------------------------------------------------------- */

/* Append at most ``chunk`` tokens to the conversation and compute the logits after the last one. */
static void append_chunk(Model *m, int32_t *ids, int64_t count) {
  int64_t size = m->hidden.shape[0];
  size_t nbytes = (size_t)count * sizeof(int32_t);
  int32_t *positions = allocate(nbytes), *sequence = allocate(nbytes);
  for (int64_t i = 0; i < count; i++) sequence[i] = 0, positions[i] = (int32_t)(m->length + i);
  Tensor tokens, hidden, input, seq, pos, out;
  of_shape(&tokens, ids, INT32, 1, &count);
  of_shape(&hidden, NULL, m->hidden.view.dtype, 2, (int64_t[]){count, size});
  void *embedding = hidden.view.data = allocate((size_t)size_of(&hidden.view));
  run(m, "embed", (DLTensor *const[]){&tokens.view, &m->params.view, &hidden.view}, 3);
  of_shape(&input, embedding, m->hidden.view.dtype, 3, (int64_t[]){1, count, size});
  of_shape(&seq, sequence, INT32, 1, &count);
  of_shape(&pos, positions, INT32, 1, &count);
  of_shape(&out, m->logits, FLOAT32, 3, (int64_t[]){1, 1, m->vocab});
  DLTensor *const args[] = {&input.view, &m->k_pages.view, &m->v_pages.view, &m->page_table.view,
                            &seq.view,   &pos.view,        &m->params.view,  &out.view};
  run(m, count == 1 ? "decode" : "prefill", args, 8);
  m->length += count;
  free(embedding), free(positions), free(sequence);
}

static void append(Model *m, int32_t *ids, int64_t count) {
  if (m->length + count > m->context) fail("conversation", "the context is full");
  for (int64_t begin = 0; begin < count; begin += m->chunk)
    append_chunk(m, ids + begin, count - begin < m->chunk ? count - begin : m->chunk);
}

static int32_t most_likely(const Model *m) {
  int32_t best = 0;
  for (int32_t i = 1; i < m->vocab; i++)
    if (m->logits[i] > m->logits[best]) best = i;
  return best;
}

static int ends(const Model *m, int32_t token) {
  for (int i = 0; i < m->num_stops; i++)
    if (m->stops[i] == token) return 1;
  return 0;
}

/* Print the ids of an answer until a token that ends it, or until the context is full. */
static void answer(Model *m) {
  for (int32_t token = most_likely(m);; token = most_likely(m)) {
    printf("%d%c", token, ends(m, token) ? '\n' : ' ');
    fflush(stdout);
    if (m->length == m->context) fail("conversation", "the context is full");
    append(m, &token, 1);
    if (ends(m, token)) return;
  }
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s DIR model.txt\n", argv[0]);
    return 2;
  }
  static Model model;
  load(&model, argv[1], argv[2]);
  char *line = NULL;
  size_t capacity = 0;
  int32_t *ids = allocate((size_t)model.context * sizeof *ids);
  while (getline(&line, &capacity, stdin) > 0) {
    int64_t count = 0;
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
      if (count == model.context) fail("conversation", "the context is full");
      ids[count++] = (int32_t)strtol(word, NULL, 10);
      if (ids[count - 1] < 0 || ids[count - 1] >= model.vocab) fail(word, "outside of the vocabulary");
    }
    if (!count) continue;
    append(&model, ids, count);
    answer(&model);
  }
  return mlc_close(&model.library);
}
