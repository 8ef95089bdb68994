// The results of every op sample as bits, from the GPU that this process has, and two such files
// compared: of a device and of its emulation.
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>

#include "base/dtype.h"
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

Most ops have to agree to the bit. Those that call approximate functions or tensor cores have a bound, in units of
the last place of the largest number of a result. Exit status 1 if a result is farther away than that, or missing.
)";

// Of one output of one sample.
struct Record {
  std::string label, op, dtype, bytes;
};

// What two devices may differ by.
struct Bound {
  double f64 = 0, f32 = 0, bf16 = 0;  // units of the last place of the largest number
  const char* why = "the same bits";
};
constexpr Bound kFunctions{8, 16, 1, "functions of the mathematical library"};
constexpr Bound kTensorCores{0, 64, 2, "sums inside tensor cores, exp2 and log2"};
constexpr Bound kPowers{8, 4, 1, "powers of beta by pow"};

Bound bound_of(const std::string& op, const std::string& label) {
  static const std::map<std::string, Bound> bounds = [] {
    std::map<std::string, Bound> all;
    for (const char* one : {"exp", "log", "tanh", "logistic", "sin", "cos", "erf", "pow", "gelu",
                            "gelu_backward", "swiglu", "swiglu_backward", "rope", "rope_at"})
      all[one] = kFunctions;
    for (const char* one :
         {"attention", "attention_backward", "cached_attention", "linear_cross_entropy",
          "linear_cross_entropy_backward", "linear_log_sum_exp", "linear_log_sum_exp_backward"})
      all[one] = kTensorCores;
    all["adamw"] = kPowers;
    return all;
  }();
  if (auto found = bounds.find(op); found != bounds.end()) return found->second;
  // Products of bf16 are those of tensor cores; of f32, sums in a fixed order.
  const bool product = op == "dot" || op == "linear" || op == "linear_dx" || op == "linear_dw";
  return product && !label.ends_with(" f32") && !label.ends_with(" f64") ? kTensorCores : Bound{};
}

std::vector<Record> records() {
  CudaBackend backend({.graphs = false, .cublaslt = false, .cudnn = false});
  std::vector<Record> all;
  auto run = [&](const std::string& label, const Op& op, const Graph& g, const ref::Feeds& feeds) {
    const GraphResults results = run_graph(backend, g, feeds);
    for (size_t k = 0; k < results.outputs.size(); ++k)
      all.push_back({label, std::string(op.name()),
                     std::string(name(g.type(g.outputs()[k].value).dtype)),
                     results.outputs[k].bytes});
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
  for (const Case& c : longer_attention())
    run(cat("longer ", c.label, " ", c.op->key(), " ", name(DType::kBF16)), *c.op,
        readable_graph(c, DType::kBF16), feeds_for(c, DType::kBF16));
  return all;
}

// A line of words, then the bytes as they are.
void write(const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  for (const Record& r : records()) {
    file << r.label << '\t' << r.op << '\t' << r.dtype << '\t' << r.bytes.size() << '\n' << r.bytes;
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
    if (words.size() != 4) throw UserError(cat("'", path, "' was not written by op_bits write"));
    Record r{words[0], words[1], words[2], std::string(std::stoul(words[3]), '\0')};
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

// In units of the last place of the largest number; infinite where only one of two is a number.
double distance(const Record& first, const Record& second) {
  const Doubles a = values_of(first), b = values_of(second);
  const int digits = second.dtype == "f64" ? 52 : second.dtype == "f32" ? 23 : 7;
  double largest = 0, apart = 0;
  for (double v : b)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < b.size(); ++i) {
    const double x = a[i], y = b[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
    apart = std::max(apart, std::abs(x - y));
  }
  if (apart == 0) return 0;
  return largest == 0 ? std::numeric_limits<double>::infinity()
                      : apart / std::ldexp(1.0, std::ilogb(largest) - digits);
}

double allowed(const Record& r) {
  const Bound bound = bound_of(r.op, r.label);
  return r.dtype == "f64"    ? bound.f64
         : r.dtype == "f32"  ? bound.f32
         : r.dtype == "bf16" ? bound.bf16
                             : 0;
}

struct Row {
  int results = 0, same_bits = 0, failed = 0;
  double largest = 0;
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
    row.why = bound_of(b.op, b.label).why;
    if (a.bytes == b.bytes) {
      ++row.same_bits;
      continue;
    }
    const double apart = distance(a, b), most = allowed(b);
    row.largest = std::max(row.largest, apart);
    if (most > 0 && apart <= most) continue;
    ++row.failed, ++failed;
    std::printf("FAILED %s: %g units of the last place of the largest number, at most %g\n",
                b.label.c_str(), apart, most);
  }
  std::printf("%-40s %8s %10s %7s %14s  %s\n", "op", "results", "same bits", "failed",
              "largest, units", "bound for");
  for (const auto& [op, row] : rows)
    std::printf("%-40s %8d %10d %7d %14g  %s\n", op.c_str(), row.results, row.same_bits, row.failed,
                row.largest, row.why.c_str());
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
