#include "backends/cpu/kernels/attention.h"
#include "tests/backends/cpu/attention_reference.h"

namespace tessera::cpu {
namespace {

// Full of NaN, and no byte larger than asked for.
class Workspace {
 public:
  explicit Workspace(int64_t bytes)
      : data_(
            static_cast<char*>(::operator new(static_cast<size_t>(bytes), std::align_val_t(64)))) {
    std::memset(data_, 0xff, static_cast<size_t>(bytes));
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { ::operator delete(data_, std::align_val_t(64)); }
  void* data() { return data_; }

 private:
  char* data_;
};

struct Result {
  Heads o;
  Tensor lse;
  Packed gradient;
  bool operator==(const Result&) const = default;
};

void run_forward(const AttentionProblem& p, Packed& in, Result& out, Isa isa, ThreadPool& pool) {
  Workspace workspace(attention_forward_workspace(p, isa, pool.threads()));
  std::vector<int64_t> keys = dropout_keys(p);
  AttentionForward args{.problem = p,
                        .q = in.all.at(0),
                        .k = in.all.at(in.k),
                        .v = in.all.at(in.v),
                        .o = out.o.all.data(),
                        .lse = out.lse.f32(),
                        .q_stride = in.stride,
                        .k_stride = in.stride,
                        .v_stride = in.stride,
                        .o_stride = out.o.stride,
                        .workspace = workspace.data(),
                        .row_keys = keys.data(),
                        .first_head = kFirstHead};
  attention_forward(args, isa, pool);
}

void run_backward(const AttentionProblem& p, Packed& in, const Heads& dout, Result& out, Isa isa,
                  ThreadPool& pool) {
  Workspace workspace(attention_backward_workspace(p, isa, pool.threads()));
  std::vector<int64_t> keys = dropout_keys(p);
  int64_t stride = in.stride;
  AttentionBackward args{.problem = p,
                         .q = in.all.at(0),
                         .k = in.all.at(in.k),
                         .v = in.all.at(in.v),
                         .o = out.o.all.data(),
                         .dout = dout.all.data(),
                         .lse = out.lse.f32(),
                         .dq = out.gradient.all.at(0),
                         .dk = out.gradient.all.at(in.k),
                         .dv = out.gradient.all.at(in.v),
                         .q_stride = stride,
                         .k_stride = stride,
                         .v_stride = stride,
                         .o_stride = out.o.stride,
                         .dout_stride = dout.stride,
                         .dq_stride = stride,
                         .dk_stride = stride,
                         .dv_stride = stride,
                         .workspace = workspace.data(),
                         .row_keys = keys.data(),
                         .first_head = kFirstHead};
  attention_backward(args, isa, pool);
}

Result run(const AttentionProblem& p, Packed& in, const Heads& dout, Isa isa, ThreadPool& pool) {
  Result out{Heads(p, kUntouched), Tensor(DType::kF32, p.batch * p.heads * p.tokens, kUntouched),
             Packed(p, kUntouched)};
  run_forward(p, in, out, isa, pool);
  run_backward(p, in, dout, out, isa, pool);
  return out;
}

// Which part of a packed row an error is taken over.
struct Columns {
  int64_t stride, begin, end;
};
template <class A>
double error_over(const A& a, const Doubles& exact, const Doubles& terms, Columns columns) {
  double difference = 0, norm = 0;
  for (int64_t row = 0; row < std::ssize(exact); row += columns.stride) {
    for (int64_t i = row + columns.begin; i < row + columns.end; ++i) {
      difference += (a[i] - exact[i]) * (a[i] - exact[i]);
      norm += terms[i] * terms[i];
    }
  }
  return std::sqrt(difference / norm);
}

// The rule for a fused kernel: at most 1.5 times the error of its decomposition, or, where that
// happens to be exact, of one rounding of the terms.
void expect_as_good_over(const char* what, const Tensor& kernel, const Doubles& decomposed,
                         const Doubles& exact, const Doubles& terms, Columns columns) {
  double roundoff = kernel.dtype() == DType::kF32 ? 0x1p-24 : 0x1p-9;
  double limit = 1.5 * std::max(error_over(decomposed, exact, terms, columns), roundoff);
  double error = error_over(kernel, exact, terms, columns);
  EXPECT_LE(error, limit) << what << ", " << error * 1.5 / limit << " times the decomposition";
}

std::vector<Isa> all_isas() {
  std::vector<Isa> isas = isas_here();
  if (detect_isa() == Isa::kAmx) isas.push_back(Isa::kAmx);
  return isas;
}

void expect_gaps_untouched(const Tensor& tensor, int64_t stride) {
  for (int64_t end = stride; end <= tensor.size(); end += stride)
    for (int64_t i = end - kGap; i < end; ++i) ASSERT_EQ(tensor[i], kUntouched) << i;
}

void expect_as_good_as_decomposition(const AttentionProblem& p, double spread) {
  Packed in = random_inputs(p, 1, spread);
  Heads dout(p, 0);
  dout.all = Tensor::random(p.dtype, dout.all.size(), 2);
  Expected exact = Decomposition<double>(p, in, dout).expected();
  Expected rough = Decomposition<float>(p, in, dout).expected();
  for (Isa isa : all_isas()) {
    SCOPED_TRACE(cat(name(isa), " ", name(p.dtype), " B=", p.batch, " T=", p.tokens,
                     " D=", p.head_dim, " H=", p.heads, "/", p.kv_heads, p.causal ? " causal" : "",
                     " W=", p.window));
    Result out = run(p, in, dout, isa, pool_of(2));
    expect_gaps_untouched(out.o.all, out.o.stride);
    expect_gaps_untouched(out.gradient.all, out.gradient.stride);
    expect_as_good_over("o", out.o.all, rough.o, exact.o, exact.o,
                        {out.o.stride, 0, out.o.stride - kGap});
    // Absolute: adding a constant to all scores changes lse, not its quality.
    expect_as_good_over("lse", out.lse, rough.lse, exact.lse, Doubles(exact.lse.size(), 1 + spread),
                        {1, 0, 1});
    const Packed& g = out.gradient;
    auto gradient = [&](const char* what, int64_t begin, int64_t end) {
      expect_as_good_over(what, g.all, rough.gradient, exact.gradient, exact.gradient_terms,
                          {g.stride, begin, end});
    };
    gradient("dq", 0, g.k);
    gradient("dk", g.k, g.v);
    gradient("dv", g.v, g.stride - kGap);
  }
}

AttentionProblem problem(int64_t tokens, int64_t head_dim, int64_t heads, int64_t kv_heads,
                         bool causal, int64_t window) {
  AttentionProblem p;
  // Enough numbers for a mean error.
  p.batch = tokens < 4 ? 16 : tokens < 20 ? 4 : tokens < 100 ? 1 + tokens % 2 : 1;
  p.tokens = tokens;
  p.head_dim = head_dim;
  p.heads = heads;
  p.kv_heads = kv_heads;
  p.causal = causal;
  p.window = window;
  p.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
  return p;
}

constexpr int64_t kTokens[] = {1, 2, 3, 7, 16, 17, 33, 64, 65, 130, 257};
constexpr int64_t kHeadDims[] = {4, 8, 20, 32, 64, 80, 128};
struct HeadCounts {
  int64_t heads, kv_heads;
};
constexpr HeadCounts kHeadCounts[] = {{1, 1}, {4, 4}, {4, 2}, {6, 1}};
struct Mask {
  bool causal;
  int64_t window;
};
// Windows that end one key before, at and behind the edge of a block of 64, and one without
// causality.
constexpr Mask kMasks[] = {{true, 0},  {true, 2},  {false, 0}, {true, 63},
                           {true, 64}, {true, 66}, {false, 20}};

// Every length with every mask, and every head size with every grouping; the others take turns.
std::vector<AttentionProblem> sampled_problems() {
  std::vector<AttentionProblem> problems;
  for (int64_t tokens : kTokens) {
    for (Mask mask : kMasks) {
      size_t i = problems.size();
      HeadCounts counts = kHeadCounts[i % 4];
      if (tokens > 200) counts = {2, 1};
      problems.push_back(problem(tokens, kHeadDims[(i + i / 7) % 7], counts.heads, counts.kv_heads,
                                 mask.causal, mask.window));
    }
  }
  for (int64_t head_dim : kHeadDims) {
    for (HeadCounts counts : kHeadCounts) {
      size_t i = problems.size();
      Mask mask = kMasks[i % 3];
      problems.push_back(problem(i % 2 == 0 ? 65 : 33, head_dim, counts.heads, counts.kv_heads,
                                 mask.causal, mask.window));
    }
  }
  return problems;
}

TEST(Attention, ErrorIsAtMostThatOfTheDecompositionF32) {
  for (AttentionProblem& p : sampled_problems()) expect_as_good_as_decomposition(p, 1);
}

TEST(Attention, ErrorIsAtMostThatOfTheDecompositionBF16) {
  for (AttentionProblem& p : sampled_problems()) {
    p.dtype = DType::kBF16;
    expect_as_good_as_decomposition(p, 1);
  }
}

TEST(Attention, SharpDistributions) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    AttentionProblem p = problem(130, 64, 2, 1, true, 0);
    p.dtype = dtype;
    expect_as_good_as_decomposition(p, 4);
  }
}

TEST(Attention, WidestHead) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (int64_t head_dim : {1, 251, 256}) {
      AttentionProblem p = problem(66, head_dim, 2, 1, true, 0);
      p.dtype = dtype;
      expect_as_good_as_decomposition(p, 1);
    }
  }
}

// Few heads and many tokens are cut into several chunks a head, evenly and unevenly.
const AttentionProblem kInChunks[] = {problem(520, 20, 2, 1, true, 0),
                                      problem(600, 8, 2, 2, true, 300)};

TEST(Attention, HeadsInChunks) {
  for (AttentionProblem p : kInChunks) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      p.dtype = dtype;
      expect_as_good_as_decomposition(p, 1);
    }
  }
}

// Queries of the end alone have the bits that they have among all.
TEST(Attention, QueriesFromABlockOn) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (auto [tokens, first, window] :
         {std::tuple{65, 64, 0}, {130, 64, 0}, {257, 192, 70}, {300, 128, 0}}) {
      AttentionProblem p = problem(tokens, 20, 4, 2, true, window);
      p.dtype = dtype;
      p.batch = 1;
      Packed in = random_inputs(p, 3, 1);
      for (Isa isa : all_isas()) {
        ThreadPool pool(2);
        Result whole{Heads(p, kUntouched), Tensor(DType::kF32, p.heads * tokens), Packed(p, 0)};
        run_forward(p, in, whole, isa, pool);
        AttentionProblem end = p;
        end.first_query = first;
        Workspace workspace(attention_forward_workspace(end, isa, pool.threads()));
        Heads o(p, kUntouched);
        attention_forward({.problem = end,
                           .q = in.all.at(first * in.stride),
                           .k = in.all.at(in.k),
                           .v = in.all.at(in.v),
                           .o = o.all.data(),
                           .q_stride = in.stride,
                           .k_stride = in.stride,
                           .v_stride = in.stride,
                           .o_stride = o.stride,
                           .workspace = workspace.data()},
                          isa, pool);
        for (int64_t i = 0; i < (tokens - first) * o.stride; ++i)
          ASSERT_EQ(o.all[i], whole.o.all[first * o.stride + i]) << tokens << " " << i;
      }
    }
  }
}

AttentionProblem with_dropout(AttentionProblem p, double rate) {
  p.threshold = static_cast<int32_t>(rate * 65536);
  p.stream = stream_of("attention");
  return p;
}

TEST(Attention, Dropout) {
  for (AttentionProblem p :
       {with_dropout(problem(7, 20, 4, 2, true, 0), 0.1), with_dropout(kInChunks[1], 0.2),
        with_dropout(problem(65, 80, 4, 4, true, 0), 0.5),
        with_dropout(problem(130, 64, 6, 1, false, 0), 0.3),
        with_dropout(problem(200, 32, 2, 2, true, 66), 0.1)}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      p.dtype = dtype;
      expect_as_good_as_decomposition(p, 1);
    }
  }
}

// With values of 1 the output counts the kept probabilities, whose mean is 1.
TEST(Attention, DropoutKeepsTheMean) {
  AttentionProblem p = with_dropout(problem(257, 8, 8, 8, false, 0), 0.4);
  Packed in(p, 1);
  Heads dout(p, 0);
  for (Isa isa : all_isas()) {
    Result out = run(p, in, dout, isa, pool_of(2));
    double sum = 0;
    int64_t count = 0;
    for (int64_t row = 0; row < p.batch * p.tokens; ++row)
      for (int64_t h = 0; h < p.heads; ++h, ++count) sum += out.o.all[row * out.o.stride + h * 8];
    // Of 528,392 probabilities of 1 / 257: five standard deviations.
    EXPECT_NEAR(sum / static_cast<double>(count), 1, 0.006) << name(isa);
  }
}

TEST(Attention, SameBitsForEveryNumberOfThreads) {
  for (AttentionProblem p : {kInChunks[0], kInChunks[1], problem(200, 32, 6, 2, true, 90),
                             problem(130, 64, 4, 4, false, 0), problem(65, 8, 17, 17, true, 0),
                             with_dropout(kInChunks[0], 0.1)}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      p.dtype = dtype;
      Packed in = random_inputs(p, 3, 1);
      Heads dout(p, 0);
      dout.all = Tensor::random(dtype, dout.all.size(), 4);
      for (Isa isa : all_isas()) {
        SCOPED_TRACE(cat(name(isa), " ", name(dtype), " T=", p.tokens));
        same_for_all_threads([&](ThreadPool& pool) { return run(p, in, dout, isa, pool); });
      }
    }
  }
}

// Scores of 1e36 in either direction, with zeros among them: softmax is then a choice.
TEST(Attention, HugeScoresDoNotOverflow) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    AttentionProblem p = problem(150, 32, 1, 1, true, 0);
    p.dtype = dtype;
    p.scale = 1;
    Packed in = random_inputs(p, 5, 1);
    Heads dout(p, 1);
    for (int64_t row = 0; row < p.batch * p.tokens; ++row) {
      for (int64_t d = 0; d < p.head_dim; ++d) {
        in.all.set(row * in.stride + d, d == 0 ? 0x1p60 : 0);
        double key = row % p.tokens == 0 ? 0 : row % 3 == 0 ? 0x1p59 : -0x1p60;
        in.all.set(row * in.stride + in.k + d, d == 0 ? key : 0);
      }
    }
    Expected exact = Decomposition<double>(p, in, dout).expected();
    for (Isa isa : all_isas()) {
      SCOPED_TRACE(cat(name(isa), " ", name(dtype)));
      Result out = run(p, in, dout, isa, pool_of(1));
      Columns all{out.o.stride, 0, out.o.stride - kGap};
      EXPECT_LE(error_over(out.o.all, exact.o, exact.o, all), 0.02);
      EXPECT_LE(relative_error(out.lse, exact.lse), 1e-6);
      for (int64_t i = 0; i < out.gradient.all.size(); ++i)
        ASSERT_TRUE(std::isfinite(out.gradient.all[i])) << i;
    }
  }
}

// lse in closed form, masks counted.
TEST(Attention, UniformScoresGiveLogOfTheVisibleCount) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    AttentionProblem p = problem(100, 16, 2, 2, true, 70);
    p.dtype = dtype;
    Packed in = random_inputs(p, 6, 1);
    Heads dout(p, 0);
    for (int64_t row = 0; row < p.batch * p.tokens; ++row)
      for (int64_t i = 0; i < in.v; ++i) in.all.set(row * in.stride + i, 2);
    for (Isa isa : all_isas()) {
      Result out = run(p, in, dout, isa, pool_of(1));
      for (int64_t i = 0; i < out.lse.size(); ++i) {
        double visible = static_cast<double>(std::min<int64_t>(i % p.tokens + 1, p.window));
        ASSERT_NEAR(out.lse[i], 4 * 16 * p.scale + std::log(visible), 1e-5)
            << name(isa) << " " << name(dtype) << " " << i;
      }
    }
  }
}

// A key that is not a number spoils the queries that see it and no others.
TEST(Attention, NanReachesExactlyTheQueriesThatSeeIt) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    AttentionProblem p = problem(100, 20, 1, 1, true, 30);
    p.dtype = dtype;
    constexpr int64_t kBadKey = 41;
    Packed in = random_inputs(p, 7, 1);
    in.all.set(kBadKey * in.stride + in.k + 3, NAN);
    Heads dout(p, 1);
    for (Isa isa : all_isas()) {
      Result out = run(p, in, dout, isa, pool_of(1));
      for (int64_t t = 0; t < p.tokens; ++t) {
        bool sees = t >= kBadKey && t - kBadKey < p.window;
        ASSERT_EQ(std::isnan(out.lse[t]), sees) << name(isa) << " " << name(dtype) << " " << t;
        ASSERT_EQ(std::isnan(out.o.all[t * out.o.stride]), sees) << name(isa) << " " << t;
        ASSERT_EQ(std::isnan(out.gradient.all[t * out.gradient.stride]), sees) << name(isa) << t;
      }
    }
  }
}

TEST(Attention, NothingToDo) {
  AttentionProblem p = problem(0, 64, 2, 1, true, 0);
  for (Isa isa : all_isas()) {
    AttentionForward forward{.problem = p};
    AttentionBackward backward{.problem = p};
    attention_forward(forward, isa, pool_of(2));
    attention_backward(backward, isa, pool_of(2));
  }
}

}  // namespace
}  // namespace tessera::cpu
