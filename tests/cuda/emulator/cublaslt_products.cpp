// A double of cublasLt: holds each call to what cuBLAS documents, and computes on the host, late
// and in order like any work of the device. Sums are in ascending order in the compute type.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>

#include "access_checks.h"
#include "cublaslt_objects.h"
#include "matrix_product.h"

namespace tessera::emulated_gpu {
namespace {

struct Problem {
  Description description;
  Layout a, b, c, d;
};

// The conditions of cublasLtMatmul's documentation; false and a finding for a product that is none.
bool is_product(const Problem& p) {
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d}) {
    if (l->rows <= 0 || l->columns <= 0) return lt_wrong("a matrix without elements");
    if (l->leading < l->rows) return lt_wrong("a leading dimension is less than the rows");
    if (l->batches != p.d.batches) return lt_wrong("layouts differ in their number of batches");
  }
  const bool ta = p.description.transpose_a, tb = p.description.transpose_b;
  const int64_t m = ta ? p.a.columns : p.a.rows, k = ta ? p.a.rows : p.a.columns;
  const int64_t k_of_b = tb ? p.b.columns : p.b.rows, n = tb ? p.b.rows : p.b.columns;
  if (k != k_of_b || p.d.rows != m || p.d.columns != n || p.c.rows != m || p.c.columns != n) {
    return lt_wrong("the layouts are not those of a product");
  }
  if (p.c.type != p.d.type) return lt_wrong("C and D differ in type");
  return true;
}

bool is_supported(const Problem& p) {
  const Description& d = p.description;
  if (p.a.type != p.b.type || p.c.type != p.d.type) return false;
  if (d.compute == kCublasCompute64F) {
    return d.scale == kCudaReal64F && p.a.type == kCudaReal64F && p.d.type == kCudaReal64F &&
           d.epilogue == kEpilogueDefault;
  }
  if (d.compute != kCublasCompute32F || d.scale != kCudaReal32F) return false;
  const bool half = p.a.type == kCudaReal16BF || p.a.type == kCudaReal16F;
  if (!half && p.a.type != kCudaReal32F) return false;
  if (p.d.type != p.a.type && !(half && p.d.type == kCudaReal32F)) return false;
  return d.epilogue == kEpilogueDefault || d.epilogue == kEpilogueBias;
}

std::array<int64_t, 40> key_of(const Problem& p) {
  std::array<int64_t, 40> key{};
  size_t n = 0;
  for (const int64_t v : {int64_t{p.description.compute}, int64_t{p.description.scale},
                          int64_t{p.description.transpose_a}, int64_t{p.description.transpose_b},
                          int64_t{p.description.epilogue}}) {
    key[n++] = v;
  }
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d}) {
    for (const int64_t v :
         {int64_t{l->type}, l->rows, l->columns, l->leading, l->batches, l->stride}) {
      key[n++] = v;
    }
  }
  return key;
}

uint64_t hash_of(std::span<const int64_t> numbers) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int64_t number : numbers) {
    hash = (hash ^ static_cast<uint64_t>(number)) * 0x100000001b3;
    hash ^= hash >> 29;
  }
  return hash;
}

// What an answer of the heuristic is good for: all of it stands in the answer's bytes, so that it
// may be kept and used by another process.
struct Algorithm {
  uint64_t problem = 0;
  uint16_t alignment[4] = {};
  uint64_t workspace = 0, parts = 1, scheme = kReductionSchemeNone;
};
constexpr uint64_t kAlgorithmMark = 0x7e55e7a0000a16, kAlgorithmsKnown = 4;

// The n-th for a product. What is proposed first depends on the alignment too, and whether it takes
// a workspace on the seed. The last adds in no fixed order.
Algorithm algorithm_of(const Problem& problem, const Preference& preference, uint64_t number) {
  Algorithm algorithm;
  algorithm.problem = hash_of(key_of(problem));
  for (int n = 0; n < 4; ++n) {
    algorithm.alignment[n] = static_cast<uint16_t>(preference.alignment[n]);
  }
  const int64_t drawn[] = {static_cast<int64_t>(algorithm.problem), preference.alignment[0],
                           preference.alignment[1], preference.alignment[2]};
  const uint64_t draw = hash_of(drawn) >> 16;
  algorithm.parts = 1 + (draw + number) % 2;
  if (algorithm.parts > 1) algorithm.scheme = kReductionSchemeComputeType;
  if (number + 1 == kAlgorithmsKnown) {
    algorithm.parts = 2;
    algorithm.scheme = kReductionSchemeInPlace;
  }
  // Some products want a workspace, some do not.
  const uint64_t most = std::min<uint64_t>(preference.workspace, 64 << 10);
  algorithm.workspace = ((draw >> 8) + number / 2 + machine().seed) % 2 ? most / 256 * 256 : 0;
  return algorithm;
}

cublasLtMatmulAlgo bytes_of(const Algorithm& algorithm) {
  cublasLtMatmulAlgo bytes{};
  bytes.data[0] = kAlgorithmMark;
  bytes.data[1] = algorithm.problem;
  std::memcpy(&bytes.data[2], algorithm.alignment, sizeof algorithm.alignment);
  bytes.data[3] = algorithm.workspace;
  bytes.data[4] = algorithm.parts;
  bytes.data[5] = algorithm.scheme;
  for (int n = 0; n < 7; ++n) bytes.data[7] = (bytes.data[7] ^ bytes.data[n]) * 0x100000001b3;
  return bytes;
}

// None where a bit of the bytes is another.
std::optional<Algorithm> algorithm_in(const cublasLtMatmulAlgo& bytes) {
  Algorithm algorithm{bytes.data[1], {}, bytes.data[3], bytes.data[4], bytes.data[5]};
  std::memcpy(algorithm.alignment, &bytes.data[2], sizeof algorithm.alignment);
  const cublasLtMatmulAlgo same = bytes_of(algorithm);
  if (std::memcmp(&same, &bytes, sizeof bytes) != 0) return std::nullopt;
  return algorithm;
}

std::optional<Problem> problem_of(cublasLtMatmulDesc desc, cublasLtMatrixLayout a,
                                  cublasLtMatrixLayout b, cublasLtMatrixLayout c,
                                  cublasLtMatrixLayout d, const char* call) {
  const Description* description =
      object_of(Handle::kDescription, lt_objects().descriptions, desc, call, "description");
  const Layout* layouts[4];
  const cublasLtMatrixLayout given[4] = {a, b, c, d};
  for (int n = 0; n < 4; ++n) {
    layouts[n] = object_of(Handle::kLayout, lt_objects().layouts, given[n], call, "layout");
    if (!layouts[n]) return std::nullopt;
  }
  if (!description) return std::nullopt;
  return Problem{*description, *layouts[0], *layouts[1], *layouts[2], *layouts[3]};
}

MatrixView view(const Layout& layout, const void* at) {
  return {static_cast<std::byte*>(const_cast<void*>(at)),
          layout.type,
          layout.rows,
          layout.columns,
          layout.leading,
          layout.batches,
          layout.stride};
}

// The bytes of a matrix, a piece a column where there are gaps.
std::vector<Range> ranges_of(const MatrixView& m, bool writes) {
  std::vector<Range> ranges;
  const int64_t size = element_bytes(m.type);
  for (int64_t batch = 0; batch < m.batches; ++batch) {
    const std::byte* begin = m.data + batch * m.stride * size;
    if (m.leading == m.rows) {
      ranges.push_back({begin, m.rows * m.columns * size, writes});
      continue;
    }
    for (int64_t column = 0; column < m.columns; ++column) {
      ranges.push_back({begin + column * m.leading * size, m.rows * size, writes});
    }
  }
  return ranges;
}

int64_t extent(const MatrixView& m) {
  return ((m.batches - 1) * m.stride + (m.columns - 1) * m.leading + m.rows) *
         element_bytes(m.type);
}

struct Call {
  Problem problem;
  Product product;
  MatrixView a, b, c, d;
  std::byte* workspace;
  uint64_t workspace_bytes;
};

std::vector<Range> run_product(const Call& call) {
  for (const MatrixView* m : {&call.a, &call.b, &call.c, &call.d}) {
    if (m == &call.c && call.product.beta == 0) continue;
    if (!machine().memory_of(m->data, extent(*m), "a product of cublasLt")) return {};
  }
  std::vector<Range> ranges;
  const auto add = [&](const std::vector<Range>& more) {
    ranges.insert(ranges.end(), more.begin(), more.end());
  };
  add(ranges_of(call.a, false));
  add(ranges_of(call.b, false));
  if (call.product.beta != 0) add(ranges_of(call.c, false));
  if (call.product.bias) {
    ranges.push_back(
        {call.product.bias, call.d.rows * element_bytes(call.product.bias_type), false});
  }
  for (const Range& range : ranges) {
    if (!simt::is_written(range.begin, static_cast<size_t>(range.bytes))) {
      lt_wrong("a product reads what nobody has written");
    }
  }
  multiply(call.product, call.a, call.b, call.c, call.d);
  add(ranges_of(call.d, true));
  if (call.workspace_bytes) {  // what partial sums may be put to
    std::memset(call.workspace, 0xff, call.workspace_bytes);
    ranges.push_back({call.workspace, static_cast<int64_t>(call.workspace_bytes), true});
  }
  for (const Range& range : ranges) {
    if (range.writes) simt::set_written(range.begin, static_cast<size_t>(range.bytes));
  }
  return ranges;
}

bool overlap(const MatrixView& x, const MatrixView& y) {
  return x.data < y.data + extent(y) && y.data < x.data + extent(x);
}

// What the heuristic said of the pointers and the workspace.
bool keeps_to(const Algorithm& algorithm, const Call& call) {
  const char* names[] = {"A", "B", "C", "D"};
  const MatrixView* views[] = {&call.a, &call.b, &call.c, &call.d};
  for (int n = 0; n < 4; ++n) {
    if (reinterpret_cast<uintptr_t>(views[n]->data) % algorithm.alignment[n] != 0) {
      return lt_wrong(std::string(names[n]) + " is not aligned as the heuristic was asked for");
    }
  }
  if (algorithm.problem != hash_of(key_of(call.problem))) {
    return lt_wrong("the algorithm was chosen for another product");
  }
  if (algorithm.scheme == kReductionSchemeInPlace) {
    return lt_wrong("the algorithm adds in an order that is not fixed");
  }
  return true;
}

cublasStatus add_product(Call call, const std::optional<Algorithm>& algorithm, Stream& stream,
                         uint64_t given_workspace) {
  if (!is_product(call.problem)) return kCublasInvalidValue;
  if (!is_supported(call.problem)) {
    lt_wrong("types or an epilogue that it does not multiply");
    return kCublasNotSupported;
  }
  if (algorithm) {
    if (!keeps_to(*algorithm, call)) return kCublasInvalidValue;
    call.workspace_bytes = algorithm->workspace;
    call.product.parts = static_cast<int>(algorithm->parts);
    if (algorithm->workspace > given_workspace) {
      lt_wrong("the workspace is smaller than the algorithm needs");
      return kCublasInvalidValue;
    }
  }
  if (call.workspace_bytes && reinterpret_cast<uintptr_t>(call.workspace) % 256 != 0) {
    lt_wrong("the workspace is not aligned to 256 bytes");
    return kCublasInvalidValue;
  }
  if (call.workspace_bytes &&
      !machine().memory_of(call.workspace, static_cast<int64_t>(call.workspace_bytes),
                           "the workspace of cublasLt")) {
    return kCublasInvalidValue;
  }
  const bool in_place = call.c.data == call.d.data;
  if (call.product.beta != 0 && in_place &&
      (call.c.leading != call.d.leading || call.c.stride != call.d.stride)) {
    lt_wrong("C and D are in place but differ in layout");
    return kCublasInvalidValue;
  }
  if (overlap(call.d, call.a) || overlap(call.d, call.b) ||
      (call.product.beta != 0 && !in_place && overlap(call.c, call.d))) {
    lt_wrong("D overlaps an operand");
    return kCublasInvalidValue;
  }
  Work work;
  work.label = "product of cublasLt";
  work.is_launch = true;
  work.prepare = [call] { return [call] { return run_product(call); }; };
  machine().add(stream, std::move(work));
  return kCublasSuccess;
}

}  // namespace
}  // namespace tessera::emulated_gpu

using namespace tessera::emulated_gpu;

extern "C" {

cublasStatus cublasLtMatmulAlgoGetHeuristic(cublasLtHandle handle, cublasLtMatmulDesc desc,
                                            cublasLtMatrixLayout a, cublasLtMatrixLayout b,
                                            cublasLtMatrixLayout c, cublasLtMatrixLayout d,
                                            cublasLtMatmulPreference preference, int requested,
                                            cublasLtMatmulHeuristicResult* results, int* returned) {
  const std::lock_guard lock(machine().mutex);
  *returned = 0;
  if (!object_of(Handle::kLibrary, lt_objects().libraries, handle, __func__, "handle")) {
    return kCublasNotInitialized;
  }
  const auto problem = problem_of(desc, a, b, c, d, __func__);
  const Preference* p =
      object_of(Handle::kPreference, lt_objects().preferences, preference, __func__, "preference");
  if (!problem || !p || requested < 1 || !is_product(*problem)) return kCublasInvalidValue;
  if (!is_supported(*problem)) return kCublasNotSupported;
  int count = 0;
  for (uint64_t number = 0; number < kAlgorithmsKnown && count < requested; ++number) {
    const Algorithm algorithm = algorithm_of(*problem, *p, number);
    if (algorithm.scheme && !(p->schemes & algorithm.scheme)) continue;
    results[count] = {};
    results[count].algo = bytes_of(algorithm);
    results[count].workspace_bytes = algorithm.workspace;
    results[count++].waves = 1;
  }
  *returned = count;
  return count > 0 ? kCublasSuccess : kCublasNotSupported;
}

cublasStatus cublasLtMatmulAlgoCheck(cublasLtHandle handle, cublasLtMatmulDesc desc,
                                     cublasLtMatrixLayout a, cublasLtMatrixLayout b,
                                     cublasLtMatrixLayout c, cublasLtMatrixLayout d,
                                     const cublasLtMatmulAlgo* algo,
                                     cublasLtMatmulHeuristicResult* result) {
  const std::lock_guard lock(machine().mutex);
  if (!object_of(Handle::kLibrary, lt_objects().libraries, handle, __func__, "handle")) {
    return kCublasNotInitialized;
  }
  const auto problem = problem_of(desc, a, b, c, d, __func__);
  const auto algorithm = algorithm_in(*algo);
  if (!problem || !algorithm || !is_product(*problem) ||
      algorithm->problem != hash_of(key_of(*problem))) {
    return kCublasInvalidValue;
  }
  if (!is_supported(*problem)) return kCublasNotSupported;
  result->workspace_bytes = algorithm->workspace;
  result->state = kCublasSuccess;
  result->waves = 1;
  return kCublasSuccess;
}

cublasStatus cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo* algo, int attribute,
                                                  void* value, size_t bytes, size_t* written) {
  const auto algorithm = algorithm_in(*algo);
  const bool known = attribute == kAlgoConfigSplitK || attribute == kAlgoConfigReductionScheme;
  if (!algorithm || !known || bytes != 4) return kCublasInvalidValue;
  const auto number =
      static_cast<uint32_t>(attribute == kAlgoConfigSplitK ? algorithm->parts : algorithm->scheme);
  std::memcpy(value, &number, 4);
  *written = 4;
  return kCublasSuccess;
}

cublasStatus cublasLtMatmul(cublasLtHandle handle, cublasLtMatmulDesc desc, const void* alpha,
                            const void* a, cublasLtMatrixLayout a_layout, const void* b,
                            cublasLtMatrixLayout b_layout, const void* beta, const void* c,
                            cublasLtMatrixLayout c_layout, void* d, cublasLtMatrixLayout d_layout,
                            const cublasLtMatmulAlgo* algo, void* workspace, size_t workspace_bytes,
                            CUstream stream) {
  const std::lock_guard lock(machine().mutex);
  if (ready(__func__) != kCudaSuccess) return kCublasExecutionFailed;
  const LtLibrary* library =
      object_of(Handle::kLibrary, lt_objects().libraries, handle, __func__, "handle");
  if (!library) return kCublasNotInitialized;
  const auto problem = problem_of(desc, a_layout, b_layout, c_layout, d_layout, __func__);
  Stream* s = stream_of(stream, __func__);
  if (!problem || !s) return kCublasInvalidValue;
  if (library->device != current_device()) {
    lt_wrong("the handle is of another context than the current one");
    return kCublasInvalidValue;
  }
  if (!alpha || !beta || !a || !b || !d || (!c && d)) {
    lt_wrong("a pointer is null");
    return kCublasInvalidValue;
  }
  const std::optional<Algorithm> algorithm = algo ? algorithm_in(*algo) : std::nullopt;
  if (algo && !algorithm) {
    lt_wrong("an algorithm that no heuristic gave");
    return kCublasInvalidValue;
  }
  const Description& description = problem->description;
  Call call{*problem,
            {},
            view(problem->a, a),
            view(problem->b, b),
            view(problem->c, c),
            view(problem->d, d),
            static_cast<std::byte*>(workspace),
            0};
  call.product.transpose_a = description.transpose_a != kCublasOperationNone;
  call.product.transpose_b = description.transpose_b != kCublasOperationNone;
  call.product.in_double = description.compute == kCublasCompute64F;
  call.product.alpha = scalar(description.scale, alpha);
  call.product.beta = scalar(description.scale, beta);
  if (description.epilogue != kEpilogueBias && description.bias) {
    lt_wrong("a bias is given and no epilogue adds it: cublasLt 13.1 refuses that");
    return kCublasInvalidValue;
  }
  if (description.epilogue == kEpilogueBias) {
    call.product.bias = description.bias;
    call.product.bias_type = description.bias_type < 0 ? problem->d.type : description.bias_type;
    if (!machine().memory_of(description.bias,
                             problem->d.rows * element_bytes(call.product.bias_type),
                             "the bias of cublasLt")) {
      return kCublasInvalidValue;
    }
  }
  return add_product(call, algorithm, *s, workspace_bytes);
}

}  // extern "C"
