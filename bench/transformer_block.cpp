// What the executor costs: one Llama block, forward and backward, written by hand over the kernels
// and as a graph through passes, plan and Executable. Both must give the same bits: the kernels,
// their tiles and the order of the sums are the same. They run in turn, A, B, A, B, ..., so that
// whatever else the machine does hits both alike.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "autodiff/backward.h"
#include "backends/cpu/cpu_backend.h"
#include "base/clock.h"
#include "base/random.h"
#include "bench/hand_written_block.h"
#include "nn/rotary.h"
#include "ops/composite/attention.h"
#include "ops/composite/linear.h"
#include "ops/composite/rms_norm.h"
#include "ops/composite/rope.h"
#include "ops/composite/swiglu.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"
#include "passes/canonicalize.h"
#include "passes/flat_units.h"
#include "passes/pass_runner.h"

namespace tessera::bench {
namespace {

constexpr const char* kHelp = R"(Usage: transformer_block [OPTIONS]

Times one Llama block, forward and backward, written by hand and as a graph, in turn; prints both
medians and the ratio. Exit status 1 if their results differ in any bit.

  --size NAME             tiny: B=1 T=8 width 64, 2 heads, 1 kv head, hidden 96, where the time is that of
                          the launches alone; small: B=8 T=256 width 256, 4 heads, 2 kv heads, hidden 704;
                          large: B=2 T=512 width 768, 12 heads, hidden 2048; default: all three
  --threads N             default: 1 and 2, one after the other
  --dtype f32|bf16        default: both
  --repeats N             pairs of runs (default 41)
  --samples               prints the seconds of every run too
)";

struct NamedShape {
  const char* name;
  BlockShape shape;
};
constexpr NamedShape kShapes[] = {
    {"tiny", {1, 8, 64, 2, 1, 32, 96}},
    {"small", {8, 256, 256, 4, 2, 64, 704}},
    {"large", {2, 512, 768, 12, 12, 64, 2048}},
};

struct Options {
  std::vector<std::string> sizes = {"tiny", "small", "large"};
  std::vector<int> threads = {1, 2};
  std::vector<DType> dtypes = {DType::kF32, DType::kBF16};
  int repeats = 41;
  bool samples = false;
};

// <y, dy>, whose gradient by y is dy itself: so a given cotangent enters autodiff without
// arithmetic.
class Pairing final : public OpOf<Pairing> {
 public:
  std::string_view name() const override { return "pairing"; }
  Tier tier() const override { return Tier::kComposite; }
  std::vector<TensorType> infer(const InferContext&) const override { return {{{}, DType::kF32}}; }
  bool differentiable() const override { return true; }
  std::vector<Value> vjp(const VjpContext& context) const override {
    return {context.node.inputs[1], {}};
  }
  auto fields() const { return std::make_tuple(); }
};

// The block as models/families/llama_like.cpp writes it: x [B, T, E] -> y [B, T, E], behind the
// precision pass: x and parameters are in the compute dtype.
ModelGraph block_graph(const BlockShape& s, DType dtype) {
  ModelGraph m;
  Graph& g = m.graph;
  const int64_t B = s.batch, T = s.tokens, E = s.width, H = s.heads, K = s.kv_heads;
  const int64_t D = s.head_dim, F = s.hidden;
  auto parameter = [&](const char* name, Shape shape) {
    m.parameters.push_back({.name = name, .shape = shape, .unit = "block"});
    return g.input(name, InputKind::kParameter, {shape, dtype});
  };
  auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
    return parameter(name, {rows, columns});
  };
  auto norm_weight = [&](const char* name) { return parameter(name, {E}); };
  std::vector<double> frequencies = rotary_frequencies(D, kRopeTheta);
  Value x = g.input("x", InputKind::kArgument, {{B, T, E}, dtype});
  g.input("dy", InputKind::kArgument, {{B, T, E}, dtype});
  Value n1 = rms_norm(g, x, norm_weight("norm1"), kNormEpsilon);  // [B, T, E]
  Value q = linear(g, n1, matrix("query", H * D, E));             // [B, T, H*D]
  Value k = linear(g, n1, matrix("key", K * D, E));               // [B, T, K*D]
  Value v = linear(g, n1, matrix("value", K * D, E));             // [B, T, K*D]
  q = rope(g, reshape(g, q, {B, T, H, D}), frequencies);          // [B, T, H, D]
  k = rope(g, reshape(g, k, {B, T, K, D}), frequencies);          // [B, T, K, D]
  v = reshape(g, v, {B, T, K, D});                                // [B, T, K, D]
  double scale = 1 / std::sqrt(static_cast<double>(D));
  Value o = attention(g, q, k, v, scale, {true, 0});                        // [B, T, H, D]
  o = linear(g, reshape(g, o, {B, T, H * D}), matrix("output", E, H * D));  // [B, T, E]
  Value h = add(g, x, o);                                                   // [B, T, E]
  Value n2 = rms_norm(g, h, norm_weight("norm2"), kNormEpsilon);            // [B, T, E]
  Value gate = linear(g, n2, matrix("gate", F, E));                         // [B, T, F]
  Value up = linear(g, n2, matrix("up", F, E));                             // [B, T, F]
  Value mlp = linear(g, swiglu(g, gate, up), matrix("down", E, F));         // [B, T, E]
  g.output("y", add(g, h, mlp));                                            // [B, T, E]
  return m;
}

Graph differentiate(const Graph& forward, const FlatUnit& unit) {
  Graph g = forward;
  Value x = g.input_value("x");
  Value pairing =
      g.add_one(std::make_shared<Pairing>(), {g.outputs()[0].value, g.input_value("dy")});
  const Value wrt[] = {x, g.input_value(weight_slot(unit))};
  std::vector<Value> gradients = backward(g, pairing, wrt);
  g.output("dx", gradients[0]);
  g.update("gradient", gradients[1]);
  return g;
}

Graph run_passes(const ModelGraph& model, std::vector<FlatUnit> units) {
  auto to_units = [&](const Graph& g) { return flat_units(g, model.parameters, units); };
  auto autodiff = [&](const Graph& g) { return differentiate(g, units[0]); };
  return PassRunner({}).run(
      "block", model.graph,
      {{"flat_units", to_units}, {"autodiff", autodiff}, {"canonicalize", canonicalize}});
}

// `elements` numbers of N(mean, deviation^2) in the dtype.
HostBuffer normal(int64_t elements, DType dtype, uint64_t stream, double mean, double deviation) {
  HostBuffer buffer(elements * size_of(dtype));
  for (int64_t i = 0; i < elements; ++i) {
    double x = mean + deviation * random_normal(1, stream, static_cast<uint64_t>(i));
    if (dtype == DType::kF32)
      reinterpret_cast<float*>(buffer.data())[i] = static_cast<float>(x);
    else
      reinterpret_cast<BF16*>(buffer.data())[i] = BF16(static_cast<float>(x));
  }
  return buffer;
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x.size() % 2 ? x[x.size() / 2] : (x[x.size() / 2 - 1] + x[x.size() / 2]) / 2;
}

// One case, both ways.
class Comparison {
 public:
  Comparison(const BlockShape& shape, DType dtype, int threads)
      : backend_(threads, cpu::detect_isa()),
        model_(block_graph(shape, dtype)),
        units_(make_units(model_.graph, model_.parameters)),
        graph_(backend_.compile_host(run_passes(model_, units_))),
        arenas_(graph_->memory()),
        activation_bytes_(shape.rows() * shape.width * size_of(dtype)),
        x_(normal(shape.rows() * shape.width, dtype, 1, 0, 1)),
        dy_(normal(shape.rows() * shape.width, dtype, 2, 0, 1)) {
    graph_->bind(state_, arenas_);
    std::vector<int64_t> offsets;
    auto* masters = state_.as<float>(weight_slot(units_[0]));
    for (const UnitMember& member : units_[0].members) {
      bool matrix = member.shape.size() == 2;
      int64_t n = num_elements(member.shape);
      HostBuffer values = normal(n, DType::kF32, static_cast<uint64_t>(10 + member.offset),
                                 matrix ? 0 : 1, matrix ? 0.02 : 0.1);
      std::memcpy(masters + member.offset, values.data(), static_cast<size_t>(values.bytes()));
      offsets.push_back(member.offset);
    }
    hand_ = std::make_unique<HandWrittenBlock>(shape, dtype, masters, units_[0].size, offsets,
                                               backend_.isa(), backend_.pool());
  }

  void run(int repeats) {
    auto seconds = [](auto&& step) {
      double start = monotonic_seconds();
      step();
      return monotonic_seconds() - start;
    };
    const std::map<std::string, const void*> arguments{{"x", x_.data()}, {"dy", dy_.data()}};
    auto by_hand = [&] {
      by_hand_.push_back(seconds([&] { hand_->step(x_.data(), dy_.data()); }));
    };
    auto by_graph = [&] { by_graph_.push_back(seconds([&] { graph_->run(arguments); })); };
    by_hand();
    by_graph();
    by_hand_.clear();  // the first pair warmed up
    by_graph_.clear();
    for (int i = 0; i < repeats; ++i) {
      // Every other pair the other way round: each leaves the caches to the other equally often.
      if (i % 2 == 0) by_hand();
      by_graph();
      if (i % 2 == 1) by_hand();
    }
  }

  bool equal() const {
    auto same = [](const void* a, const void* b, int64_t bytes) {
      return std::memcmp(a, b, static_cast<size_t>(bytes)) == 0;
    };
    return same(hand_->y(), graph_->output("y"), activation_bytes_) &&
           same(hand_->dx(), graph_->output("dx"), activation_bytes_) &&
           same(hand_->gradients(), state_.data("gradient"), units_[0].size * 4);
  }

  const std::vector<double>& by_hand() const { return by_hand_; }
  const std::vector<double>& by_graph() const { return by_graph_; }
  int64_t instructions() const { return static_cast<int64_t>(graph_->plan()->instructions.size()); }

 private:
  cpu::CpuBackend backend_;
  ModelGraph model_;
  std::vector<FlatUnit> units_;
  std::unique_ptr<HostExecutable> graph_;
  HostState state_;
  HostArenas arenas_;
  int64_t activation_bytes_;
  HostBuffer x_, dy_;
  std::unique_ptr<HandWrittenBlock> hand_;
  std::vector<double> by_hand_, by_graph_;
};

void print_samples(const char* label, const std::vector<double>& seconds) {
  std::printf("  %s ms:", label);
  for (double s : seconds) std::printf(" %.3f", s * 1e3);
  std::printf("\n");
}

// Returns whether both ways gave the same bits.
bool compare(const NamedShape& size, DType dtype, int threads, const Options& options) {
  Comparison comparison(size.shape, dtype, threads);
  comparison.run(options.repeats);
  std::vector<double> ratios;
  for (size_t i = 0; i < comparison.by_hand().size(); ++i) {
    ratios.push_back(comparison.by_graph()[i] / comparison.by_hand()[i]);
  }
  double hand = median(comparison.by_hand()), graph = median(comparison.by_graph());
  bool equal = comparison.equal();
  std::printf("%-6s %-5s %7d %8lld %12.3f %12.3f %8.3f %14.3f  %s\n", size.name,
              std::string(name(dtype)).c_str(), threads,
              static_cast<long long>(comparison.instructions()), hand * 1e3, graph * 1e3,
              graph / hand, median(ratios), equal ? "equal" : "DIFFERENT");
  if (options.samples) {
    print_samples("by hand", comparison.by_hand());
    print_samples("graph  ", comparison.by_graph());
  }
  std::fflush(stdout);
  return equal;
}

int64_t positive(const std::string& option, const std::string& text) {
  char* end = nullptr;
  long value = std::strtol(text.c_str(), &end, 10);
  if (*end != '\0' || value < 1 || value > 100000)
    throw UserError(cat(option, " takes a whole number from 1 to 100000, not '", text, "'"));
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string option = argv[i];
    if (option == "--samples") {
      options.samples = true;
      continue;
    }
    if (i + 1 == argc)
      throw UserError(cat("option ", option, " is unknown or lacks its value\n\n", kHelp));
    std::string value = argv[++i];
    if (option == "--size" && (value == "tiny" || value == "small" || value == "large"))
      options.sizes = {value};
    else if (option == "--dtype" && (value == "f32" || value == "bf16"))
      options.dtypes = {value == "f32" ? DType::kF32 : DType::kBF16};
    else if (option == "--threads")
      options.threads = {static_cast<int>(positive(option, value))};
    else if (option == "--repeats")
      options.repeats = static_cast<int>(positive(option, value));
    else
      throw UserError(cat("unknown option or value: ", option, " ", value, "\n\n", kHelp));
  }
  return options;
}

int run(const Options& options) {
  std::printf("instruction set %s, %d pairs of runs a line, times are medians\n",
              std::string(name(cpu::detect_isa())).c_str(), options.repeats);
  std::printf("%-6s %-5s %7s %8s %12s %12s %8s %14s  %s\n", "size", "dtype", "threads", "launches",
              "by hand ms", "graph ms", "ratio", "ratio of pairs", "results");
  bool equal = true;
  for (const NamedShape& size : kShapes) {
    if (std::find(options.sizes.begin(), options.sizes.end(), size.name) == options.sizes.end())
      continue;
    for (DType dtype : options.dtypes) {
      for (int threads : options.threads) equal = compare(size, dtype, threads, options) && equal;
    }
  }
  return equal ? 0 : 1;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
      std::fputs(tessera::bench::kHelp, stdout);
      return 0;
    }
    return tessera::bench::run(tessera::bench::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "transformer_block: %s\n", error.what());
    return 2;
  }
}
