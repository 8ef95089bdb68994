// Algorithms of cublasLt for the products of a training step, timed on a GPU: the tuner that writes
// what the program chooses from (backends/cuda/product_choices.h).
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <ranges>

#include "backends/cuda/cuda_kernels.h"
#include "base/file.h"
#include "bench/cuda_timing.h"
#include "passes/compute_weights.h"
#include "runtime/planned_program.h"

namespace tessera::bench {
namespace {

constexpr const char* kHelp = R"(Usage: cuda_products --out FILE [OPTIONS]

Times what cublasLt proposes for every product of a training step on GPU 0, among the algorithms that add in
a fixed order, and writes the fastest of each to FILE; lines of other products, devices and versions stay. An algorithm
that gives other bits in a second run is left out. Behind that it says of forward products that read the same operand
how long one product of all their columns takes beside each alone, one behind the other; that is in no file.

  --size NAME        of the job, as in cuda_ops (default llama1b)
  --dtype bf16|f32   of compute (default bf16)
  --candidates N     algorithms a product, of the library's own list (default 32)
  --repeats N        launches of each that are timed (default 10)
)";

struct Settings : JobSettings {
  std::string out;
  int candidates = 32, repeats = 10;
};

std::string key_of(const ProductProblem& problem) {
  ProductChoices key;
  key.add({"", 1, problem});
  return key.to_text();
}

// Forward products of one operand: a of all of them.
struct Siblings {
  std::string names;  // "q_proj|k_proj|v_proj"
  std::vector<ProductProblem> apart;

  // All their columns, in this order.
  ProductProblem joined() const {
    ProductProblem p = apart.front();
    for (size_t i = 1; i < apart.size(); ++i) p.n += apart[i].n;
    p.ldc = p.n;
    p.align_b = alignment_of(p.n * p.k * size_of(p.operands));
    p.align_c = alignment_of(p.m * p.n * size_of(p.result));
    return p;
  }
};

// The last word of the parameter that a value is a part of its unit for: "q_proj" of
// "layers.0.attn.q_proj.weight".
std::string parameter_of(const Programs& programs, const Graph& graph, Value v) {
  size_t member = 0;
  while (!graph.input_of(v)) {
    const Node& node = graph.nodes()[static_cast<size_t>(graph.producer(v))];
    if (node.inputs.empty()) break;
    if (node.op->name() == "unflatten")
      member = static_cast<size_t>(std::ranges::find(node.outputs, v) - node.outputs.begin());
    v = node.inputs.front();
  }
  const GraphInput* slot = graph.input_of(v);
  for (const FlatUnit& unit : programs.units) {
    if (!slot || (slot->name != weight_slot(unit) && slot->name != compute_weight_slot(unit)))
      continue;
    std::string name = programs.parameters[static_cast<size_t>(unit.parameters.at(member))].name;
    if (name.ends_with(".weight")) name.resize(name.rfind('.'));
    return name.substr(name.rfind('.') + 1);
  }
  throw InternalError("a product of what is no parameter");
}

// The products of all programs of a step, and those of one operand; each once.
class StepProducts {
 public:
  StepProducts(const Job& job, Device& device) {
    register_kernels(
        table_, device,
        [this](const ProductProblem& problem) -> std::optional<Product> {
          last_ = problem;
          ++made_;
          problems_.emplace(key_of(problem), problem);
          return std::nullopt;
        },
        nullptr);
    const Programs programs = build_programs(model_builder(job.model), job.options);
    for (const Graph* program :
         {&programs.accumulate_first, &programs.accumulate, &programs.evaluate})
      if (!program->nodes().empty()) plan_program(*program, table_);
    find_siblings(programs, programs.accumulate_first);
  }

  std::vector<ProductProblem> all() const {
    std::vector<ProductProblem> all;
    for (const auto& [key, problem] : problems_)
      if (problem.m > 0 && problem.n > 0 && problem.k > 0) all.push_back(problem);
    return all;
  }
  const std::vector<Siblings>& siblings() const { return siblings_; }

 private:
  void find_siblings(const Programs& programs, const Graph& graph) {
    std::map<Value, Siblings> by_operand;
    for (const Node& node : graph.nodes()) {
      if (node.op->name() != "linear" || node.phase != Phase::kForward) continue;
      std::vector<TensorType> inputs;
      for (Value v : node.inputs) inputs.push_back(graph.type(v));
      const TensorType output = graph.type(node.outputs.front());
      made_ = 0;
      table_.prepare({*node.op, inputs, {&output, 1}, graph.mesh()});
      if (made_ != 1) continue;  // a product in parts
      Siblings& s = by_operand[node.inputs.front()];
      s.names += cat(s.names.empty() ? "" : "|", parameter_of(programs, graph, node.inputs[1]));
      s.apart.push_back(last_);
    }
    std::map<std::string, Siblings> different;  // all layers have the same
    for (Siblings& s : std::views::values(by_operand)) {
      std::string key = s.names;
      for (const ProductProblem& p : s.apart) key += key_of(p);
      const auto alike = [&](const ProductProblem& p) { return p.bias == s.apart.front().bias; };
      if (s.apart.size() > 1 && std::ranges::all_of(s.apart, alike))
        different.emplace(key, std::move(s));
    }
    for (Siblings& s : std::views::values(different)) siblings_.push_back(std::move(s));
  }

  KernelTable table_;
  ProductProblem last_;
  int made_ = 0;
  std::map<std::string, ProductProblem> problems_;
  std::vector<Siblings> siblings_;
};

// An element of a result that was read back.
double element(const std::string& bytes, int64_t index, DType dtype) {
  const char* at = bytes.data() + index * size_of(dtype);
  float number = 0;
  BF16 half;
  if (dtype == DType::kF32)
    std::memcpy(&number, at, sizeof number);
  else
    std::memcpy(&half, at, sizeof half);
  return dtype == DType::kF32 ? number : static_cast<float>(half);
}

class Tuner {
 public:
  Tuner(CudaBackend& backend, const Settings& settings)
      : products_(*backend.products()), device_(backend.device()), settings_(settings) {
    emulated_ = device_.driver().emulated();
    scratch_bytes_ = emulated_ ? 1024 : int64_t{256} << 20;
  }

  // The fastest; nothing where the library has none.
  std::optional<ProductChoice> tune(const ProductProblem& p) {
    std::vector<ProductChoice> candidates = products_.candidates(p, settings_.candidates);
    const auto guard = device_.lock();
    Buffers buffers(device_);
    const ProductArguments arguments = arguments_of(p, buffers);
    void* scratch = buffers.make(scratch_bytes_);
    const int64_t c_bytes = bytes_of_c(p);
    void* kept_c = buffers.make(c_bytes);
    device_.copy(kept_c, arguments.c, c_bytes);
    const auto result = [&](const Product& product) {
      device_.copy(arguments.c, kept_c, c_bytes);
      product.run(arguments);
      return read(arguments.c, c_bytes);
    };
    std::optional<ProductChoice> best;
    for (ProductChoice& choice : candidates) {
      const Product product = products_.make(choice);
      choice.microseconds = time(scratch, [&] { product.run(arguments); });
    }
    const double first = candidates.empty() ? 0 : candidates[0].microseconds;
    std::ranges::stable_sort(candidates, {}, &ProductChoice::microseconds);
    for (const ProductChoice& choice : candidates) {
      const Product product = products_.make(choice);
      best = choice;
      best->first_microseconds = first;
      if (result(product) == result(product)) break;
      std::printf("  left out: an algorithm gives other bits in a second run\n");
      best.reset();
    }
    std::printf("%lld x %lld x %lld, %s%s: %zu candidates", static_cast<long long>(p.m),
                static_cast<long long>(p.n), static_cast<long long>(p.k), p.transpose_a ? "t" : "n",
                p.transpose_b ? "t" : "n", candidates.size());
    if (best && !emulated_)
      std::printf(", %.1f us; the first %.1f", best->microseconds, best->first_microseconds);
    std::printf("\n");
    return best;
  }

  // One product beside those that it would take the place of, each by its algorithm. DeviceError
  // where its numbers are others.
  void compare(const Siblings& siblings, const ProductChoice& joined,
               const std::vector<ProductChoice>& apart) {
    const auto guard = device_.lock();
    Buffers buffers(device_);
    const ProductProblem& whole = joined.problem;
    const ProductArguments arguments = arguments_of(whole, buffers);
    const Product product = products_.make(joined);
    std::vector<std::function<void()>> runs;
    std::vector<void*> parts;
    int64_t column = 0;
    for (const ProductChoice& choice : apart) {
      const ProductProblem& p = choice.problem;
      const auto behind = [&](const void* from, int64_t elements) {
        return static_cast<const std::byte*>(from) + elements * size_of(p.operands);
      };
      parts.push_back(buffers.make(bytes_of_c(p)));
      const ProductArguments own{arguments.a, behind(arguments.b, column * p.ldb), parts.back(),
                                 behind(arguments.bias, column), arguments.workspace};
      runs.push_back([own, part = products_.make(choice)] { part.run(own); });
      column += p.n;
    }
    const auto run_apart = [&] {
      for (const auto& run : runs) run();
    };
    void* scratch = buffers.make(scratch_bytes_);
    const double one = time(scratch, [&] { product.run(arguments); });
    const double several = time(scratch, run_apart);
    product.run(arguments);
    run_apart();
    const std::string c = read(arguments.c, bytes_of_c(whole));
    double largest = 0, difference = 0;
    column = 0;
    for (size_t i = 0; i < apart.size(); ++i) {
      const ProductProblem& p = apart[i].problem;
      const std::string part = read(parts[i], bytes_of_c(p));
      for (int64_t at = 0; at < p.m * p.n; ++at) {
        const int64_t same = at / p.n * whole.n + column + at % p.n;
        const double x = element(part, at, p.result), y = element(c, same, p.result);
        largest = std::max(largest, std::abs(x));
        difference = std::max(difference, std::abs(x - y));
      }
      column += p.n;
    }
    // Algorithms add in orders of their own.
    if (!(largest > 0 && difference <= largest * (whole.result == DType::kF32 ? 1e-5 : 8e-3)))
      throw DeviceError(cat("CUDA: ", siblings.names, " joined give other numbers than apart"));
    std::printf("%s joined: ", siblings.names.c_str());
    if (!emulated_) std::printf("%.1f us, apart %.1f us; ", one, several);
    if (difference == 0)
      std::printf("the same numbers\n");
    else
      std::printf("numbers at most %.0e of the largest apart\n", difference / largest);
  }

 private:
  static int64_t bytes_of_c(const ProductProblem& p) { return p.m * p.ldc * size_of(p.result); }

  // Operands as aligned as the problem says, and no more.
  ProductArguments arguments_of(const ProductProblem& p, Buffers& buffers) {
    const auto operand = [&](int64_t elements, DType dtype, int64_t alignment) {
      const TensorType type{{elements + 256 / size_of(dtype)}, dtype};
      return static_cast<std::byte*>(buffers.filled(type, 1)) + alignment;
    };
    return {operand((p.transpose_a ? p.k : p.m) * p.lda, p.operands, p.align_a),
            operand((p.transpose_b ? p.n : p.k) * p.ldb, p.operands, p.align_b),
            operand(p.m * p.ldc, p.result, p.align_c), operand(p.n, p.operands, kPlacedAlignment),
            buffers.make(kLibraryWorkspaceBytes)};
  }

  std::string read(const void* from, int64_t count) {
    std::string bytes(static_cast<size_t>(count), '\0');
    const Driver& driver = device_.driver();
    driver.call(driver.copy_to_host, static_cast<void*>(bytes.data()),
                reinterpret_cast<CUdeviceptr>(from), bytes.size(), device_.stream());
    device_.finish();
    return bytes;
  }

  // Median, in microseconds, with the second-level cache overwritten before every launch; 0 on an
  // emulated device.
  template <class Run>
  double time(void* scratch, const Run& run) {
    if (emulated_) return 0;
    return 1e6 * median_seconds(device_, scratch, scratch_bytes_, 0, settings_.repeats, run);
  }

  CublasLtProducts& products_;
  CudaDevice& device_;
  const Settings& settings_;
  bool emulated_ = false;
  int64_t scratch_bytes_ = 0;
};

// By the fastest algorithm found of each; where the library has none of one, nothing.
void compare(Tuner& tuner, const Siblings& siblings,
             const std::map<std::string, ProductChoice>& chosen) {
  std::vector<ProductChoice> apart;
  for (const ProductProblem& p : siblings.apart)
    if (auto known = chosen.find(key_of(p)); known != chosen.end()) apart.push_back(known->second);
  const std::optional<ProductChoice> joined = tuner.tune(siblings.joined());
  if (joined && apart.size() == siblings.apart.size()) tuner.compare(siblings, *joined, apart);
}

void run(const Settings& settings) {
  if (settings.out.empty()) throw UserError("--out FILE says where the choices go");
  CudaBackend backend({.graphs = false});
  std::printf("%s\n", backend.description().c_str());
  if (!backend.products()) throw UserError("there is no cublasLt whose algorithms could be timed");
  if (backend.device().driver().emulated())
    std::printf("EMULATED: nothing is timed, the first algorithm is taken\n");
  ProductChoices choices;
  if (std::filesystem::exists(settings.out))
    choices = ProductChoices::parse(read_file(settings.out), cat("'", settings.out, "'"));
  Tuner tuner(backend, settings);
  std::map<std::string, ProductChoice> chosen;
  const StepProducts products(job_of(settings), backend.device());
  for (const ProductProblem& problem : products.all()) {
    if (const auto choice = tuner.tune(problem)) {
      choices.add(*choice);
      chosen.emplace(key_of(problem), *choice);
    }
  }
  write_file_atomic(settings.out, choices.to_text());
  std::printf("%zu products chosen, %lld in the file\n", chosen.size(),
              static_cast<long long>(choices.size()));
  for (const Siblings& siblings : products.siblings()) compare(tuner, siblings, chosen);
}

}  // namespace
}  // namespace tessera::bench

int main(int count, char** words) {
  using namespace tessera::bench;
  Settings settings;
  const auto take = [&](const std::string& name, const std::string& value) {
    if (name == "--out")
      settings.out = value;
    else if (name == "--candidates")
      settings.candidates = std::clamp(std::stoi(value), 1, 1000);
    else if (name == "--repeats")
      settings.repeats = std::max(1, std::stoi(value));
    else
      return settings.take(name, value);
    return true;
  };
  return benchmark_main("cuda_products", kHelp, {words, static_cast<size_t>(count)}, take, [&] {
    run(settings);
    return 0;
  });
}
