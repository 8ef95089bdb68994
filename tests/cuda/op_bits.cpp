// The results of every op sample as bits, from the GPU that this process has, and two such files
// compared: of a device and of its emulation.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>

#include "base/dtype.h"
#include "base/float16.h"
#include "tests/backends/cpu/composite_bound.h"
#include "tests/cuda/cuda_uses.h"
#include "tests/cuda/graph_run.h"

namespace tessera::cuda {
namespace {

constexpr const char* kHelp =
    R"(Usage: op_bits write FILE       runs every op sample on this machine's GPU 0, or on the emulated one of
                               TESSERA_CUDA_LIBRARIES, with the backend's own kernels
       op_bits compare DEVICE EMULATED
                               prints, op by op, how far the results of two files are apart
       op_bits bounds          prints what they may be apart

Most ops have to agree to the bit. Those that call functions of the mathematical library or tensor cores have a bound
for every element: so many units of its own last place and, where terms may cancel, a share of the largest number of
its row. Exit status 1 if an element is farther away than that, or missing.
)";

// Of one output of one sample.
struct Record {
  std::string label, op, dtype;
  int64_t row = 1;  // elements of the last dim
  std::string bytes;
};

// What an element may differ by between two devices.
struct Bound {
  double f64 = 0, f32 = 0, bf16 = 0;  // units of its own last place; of f16 as of bf16
  // Beside that, a share of the largest number of its row, of samples in f64, f32, and bf16 or f16.
  double row_f64 = 0, row_f32 = 0, row_half = 0;
  const char* why = "the same bits";
};
constexpr double kF64 = 0x1p-52, kF32 = 0x1p-23, kBf16 = 0x1p-7;  // a unit of the last place of 1
// A function of one number: rounded to bf16 it may fall on either side.
constexpr Bound kFunctions{4, 8, 1, 0, 0, 0, "functions of the mathematical library"};
// The same beside other terms.
constexpr Bound kFunctionsInSums{4,
                                 8,
                                 1,
                                 8 * kF64,
                                 8 * kF32,
                                 8 * kF32,
                                 "functions of the mathematical library, in sums of terms"};
constexpr Bound kProducts{0, 0, 1, 0, 0, 16 * kF32, "sums inside tensor cores"};
// Probabilities are rounded to bf16 before they are multiplied: one may fall on either side.
constexpr Bound kAttention{0, 0, 1, 0, 64 * kF32, kBf16, "exp and log, sums inside tensor cores"};
constexpr Bound kPowers{8, 4, 1, 8 * kF64, 4 * kF32, 4 * kF32, "powers of beta by pow"};

struct NamedBound {
  const char* op;
  Bound bound;
};
constexpr NamedBound kBounds[] = {
    {"exp", kFunctions},
    {"log", kFunctions},
    {"tanh", kFunctions},
    {"logistic", kFunctions},
    {"sin", kFunctions},
    {"cos", kFunctions},
    {"pow", kFunctions},
    {"erf", kFunctionsInSums},
    {"gelu", kFunctionsInSums},
    {"gelu_backward", kFunctionsInSums},
    {"swiglu", kFunctionsInSums},
    {"swiglu_backward", kFunctionsInSums},
    {"rope", kFunctionsInSums},
    {"rope_at", kFunctionsInSums},
    {"dot", kProducts},
    {"linear", kProducts},
    {"linear_dx", kProducts},
    {"linear_dx_add", kProducts},
    {"linear_dw", kProducts},
    {"linear_dw_add", kProducts},
    {"attention", kAttention},
    {"attention_backward", kAttention},
    {"cached_attention", kAttention},
    {"linear_cross_entropy", kAttention},
    {"linear_cross_entropy_backward", kAttention},
    {"linear_cross_entropy_backward_add", kAttention},
    {"linear_log_sum_exp", kAttention},
    {"linear_log_sum_exp_backward", kAttention},
    {"linear_log_sum_exp_backward_add", kAttention},
    {"adamw", kPowers},
};

Bound bound_of(std::string_view op) {
  for (const NamedBound& one : kBounds)
    if (op == one.op) return one.bound;
  return {};
}

int64_t row_of(const TensorType& type) {
  return type.shape.empty() ? 1 : std::max<int64_t>(1, type.shape.back());
}

std::vector<Record> records() {
  CudaBackend backend({.graphs = false, .cublaslt = false, .cudnn = false});
  std::vector<Record> all;
  auto run = [&](const std::string& label, const Op& op, const Graph& g, const ref::Feeds& feeds) {
    const GraphResults results = run_graph(backend, g, feeds);
    for (size_t k = 0; k < results.outputs.size(); ++k)
      all.push_back({label, std::string(op.name()),
                     std::string(name(g.type(g.outputs()[k].value).dtype)),
                     row_of(g.type(g.outputs()[k].value)), results.outputs[k].bytes});
  };
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (const Use& use : sampled_primitives(dtype))
      run(cat("sample ", use.label), *use.op, graph_of(use), use.feeds);
    if (dtype == DType::kF64) continue;
    for (const Use& use : larger_primitives(dtype))
      run(cat("larger ", use.op->key(), " ", name(dtype)), *use.op, graph_of(use), use.feeds);
  }
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const Case& c : composite_cases())
      if (dtype == DType::kF32 || !c.f32_only)
        run(cat("composite ", c.label, " ", c.op->key(), " ", name(dtype)), *c.op,
            readable_graph(c, dtype), feeds_for(c, dtype));
  for (DType dtype : {DType::kF32, DType::kBF16})
    for (const Case& c : wider_norms())
      run(cat("wider ", c.label, " ", c.op->key(), " ", name(dtype)), *c.op,
          readable_graph(c, dtype), feeds_for(c, dtype));
  for (const auto& [c, dtype] : long_heads())
    run(cat("long ", c.label, " ", c.op->key(), " ", name(dtype)), *c.op, readable_graph(c, dtype),
        feeds_for(c, dtype));
  for (const Case& c : longer_attention())
    run(cat("longer ", c.label, " ", c.op->key(), " ", name(DType::kBF16)), *c.op,
        readable_graph(c, DType::kBF16), feeds_for(c, DType::kBF16));
  return all;
}

// A line of words, then the bytes as they are.
void write(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  for (const Record& r : records()) {
    file << r.label << '\t' << r.op << '\t' << r.dtype << '\t' << r.row << '\t' << r.bytes.size()
         << '\n'
         << r.bytes;
  }
  file.close();
  if (!file) throw UserError(cat("cannot write '", path, "'"));
}

std::vector<Record> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(cat("cannot read '", path, "'"));
  std::vector<Record> all;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> words;
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find('\t', begin), line.size());
      words.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    if (words.size() != 5) throw UserError(cat("'", path, "' was not written by op_bits write"));
    Record r{words[0], words[1], words[2], std::stol(words[3]),
             std::string(std::stoul(words[4]), '\0')};
    file.read(r.bytes.data(), std::ssize(r.bytes));
    if (!file) throw UserError(cat("'", path, "' ends too early"));
    all.push_back(std::move(r));
  }
  return all;
}

template <class T>
Doubles values_of(const std::string& bytes) {
  Doubles values;
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    values.push_back(static_cast<double>(value));
  }
  return values;
}

// Of floats; nothing of other dtypes, whose results are the same or wrong.
Doubles values_of(const Record& r) {
  if (r.dtype == "f64") return values_of<double>(r.bytes);
  if (r.dtype == "f32") return values_of<float>(r.bytes);
  if (r.dtype != "bf16") return {};
  Doubles values;
  for (double bits : values_of<uint16_t>(r.bytes))
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
  return values;
}

// A unit of the last place of x.
double unit_of(const std::string& dtype, double x) {
  const int digits = dtype == "f64" ? 52 : dtype == "f32" ? 23 : dtype == "f16" ? 10 : 7;
  const int lowest = dtype == "f64" ? -1022 : dtype == "f16" ? -14 : -126;
  return std::ldexp(1.0, (x == 0 ? lowest : std::max(lowest, std::ilogb(x))) - digits);
}

// What a result was rounded to: those of f16 are read as f32.
std::string rounded_to(const Record& r, const Doubles& values) {
  const bool half =
      r.label.ends_with(" f16") && r.dtype == "f32" && std::ranges::all_of(values, [](double v) {
        const float x = static_cast<float>(v);
        return static_cast<float>(F16(x)) == x || std::isnan(x);
      });
  return half ? "f16" : r.dtype;
}

// Of the element that is farthest away, as a share of what it may be; infinite where only one of
// two is a number, or where nothing is allowed.
double share_of_bound(const Record& device, const Record& emulated) {
  const Bound bound = bound_of(emulated.op);
  const Doubles a = values_of(device), b = values_of(emulated);
  const std::string dtype = rounded_to(emulated, b);
  const double own = dtype == "f64" ? bound.f64 : dtype == "f32" ? bound.f32 : bound.bf16;
  const double of_row = emulated.label.ends_with(" f64")   ? bound.row_f64
                        : emulated.label.ends_with(" f32") ? bound.row_f32
                                                           : bound.row_half;
  if (b.empty()) return std::numeric_limits<double>::infinity();
  double worst = 0, largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (static_cast<int64_t>(i) % emulated.row == 0) {
      largest = 0;
      for (size_t k = i; k < std::min(b.size(), i + static_cast<size_t>(emulated.row)); ++k)
        if (std::isfinite(b[k])) largest = std::max(largest, std::abs(b[k]));
    }
    const double x = a[i], y = b[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
    const double allowed = own * unit_of(dtype, y) + of_row * largest;
    worst = std::max(
        worst, allowed > 0 ? std::abs(x - y) / allowed : std::numeric_limits<double>::infinity());
  }
  return worst;
}

void print_bounds() {
  std::printf("%-30s %5s %5s %5s %10s %10s %10s  %s\n", "op", "f64", "f32", "bf16", "row, f64",
              "row, f32", "row, half", "why");
  for (const auto& [op, b] : kBounds)
    std::printf("%-30s %5g %5g %5g %10.2g %10.2g %10.2g  %s\n", op, b.f64, b.f32, b.bf16, b.row_f64,
                b.row_f32, b.row_half, b.why);
  std::printf("All other ops: the same bits.\n");
}

struct Row {
  int results = 0, same_bits = 0, failed = 0;
  double worst = 0;
  std::string why;
};

int compare(const std::string& device, const std::string& emulated) {
  const std::vector<Record> got = read(device), want = read(emulated);
  if (got.size() != want.size() || want.empty())
    throw UserError(cat("the files are of ", got.size(), " and ", want.size(),
                        " results: write both with the same build"));
  std::map<std::string, Row> rows;
  int failed = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const Record &a = got[i], &b = want[i];
    if (a.label != b.label || a.dtype != b.dtype || a.bytes.size() != b.bytes.size())
      throw UserError(cat("the files differ at '", b.label, "': write both with the same build"));
    Row& row = rows[cat(a.op, " ", a.dtype)];
    ++row.results;
    row.why = bound_of(b.op).why;
    if (a.bytes == b.bytes) {
      ++row.same_bits;
      continue;
    }
    const double share = share_of_bound(a, b);
    row.worst = std::max(row.worst, share);
    if (share <= 1) continue;
    ++row.failed, ++failed;
    std::printf("FAILED %s: an element is away %g times what it may be\n", b.label.c_str(), share);
  }
  std::printf("%-40s %8s %10s %7s %14s  %s\n", "op", "results", "same bits", "failed",
              "share of bound", "bound for");
  for (const auto& [op, row] : rows)
    std::printf("%-40s %8d %10d %7d %14g  %s\n", op.c_str(), row.results, row.same_bits, row.failed,
                row.worst, row.why.c_str());
  int same = 0;
  for (const auto& [op, row] : rows) same += row.same_bits;
  std::printf("%zu results, %d the same to the bit, %d beyond their bound\n", want.size(), same,
              failed);
  return failed ? 1 : 0;
}

int main_of(const std::vector<std::string>& words) {
  if (words.size() == 2 && words[0] == "write") {
    write(words[1]);
    return 0;
  }
  if (words.size() == 1 && words[0] == "bounds") {
    print_bounds();
    return 0;
  }
  if (words.size() == 3 && words[0] == "compare") return compare(words[1], words[2]);
  std::fputs(kHelp, words.empty() || words[0] != "--help" ? stderr : stdout);
  return words.empty() || words[0] != "--help" ? 2 : 0;
}

}  // namespace
}  // namespace tessera::cuda

int main(int count, char** words) {
  try {
    return tessera::cuda::main_of({words + 1, words + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "op_bits: %s\n", error.what());
    return 2;
  }
}
