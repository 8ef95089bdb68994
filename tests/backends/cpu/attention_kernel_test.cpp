// Attention where the result is known: parts of a whole, any number of threads, extreme values.
#include "tests/backends/cpu/attention_run.h"

namespace tessera::cpu {
namespace {

// Queries of the end alone have the bits that they have among all.
TEST(Attention, QueriesFromABlockOn) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (auto [tokens, first, window] :
         {std::tuple{65, 64, 0}, {130, 64, 0}, {257, 192, 70}, {300, 128, 0}}) {
      AttentionProblem p = problem(tokens, 20, 4, 2, true, window);
      p.dtype = dtype;
      p.batch = 1;
      Packed in = random_inputs(p, 3, 1);
      for (Isa isa : isas_here()) {
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

// Gradients and outputs of so many tokens go past the caches where rows are whole lines; those of
// each row of the batch alone do not.
TEST(Attention, ResultsPastTheCachesHaveTheSameBits) {
  AttentionProblem both = problem(200, 112, 56, 56, true, 0);
  both.dtype = DType::kBF16;
  both.batch = 2;
  const int64_t stride = both.heads * both.head_dim, row = both.tokens * stride;
  std::vector<Tensor> in;  // q, k, v, dout
  for (uint64_t seed = 1; seed <= 4; ++seed)
    in.push_back(Tensor::random(both.dtype, 2 * row, seed));
  for (Isa isa : isas_here()) {
    if (isa != Isa::kAvx512Bf16 && isa != Isa::kAmx) continue;
    auto run_rows = [&](int64_t first, int64_t batch) {
      AttentionProblem p = both;
      p.batch = batch;
      const int64_t bytes = batch * row * size_of(p.dtype);
      std::vector<float> lse(static_cast<size_t>(batch * p.heads * p.tokens));
      Workspace out(4 * bytes);  // whole lines: o, dq, dk, dv
      auto of = [&](int64_t i) { return static_cast<char*>(out.data()) + i * bytes; };
      auto from = [&](size_t i) { return in[i].at(first * row); };
      Workspace forward(attention_forward_workspace(p, isa, 2));
      attention_forward({.problem = p,
                         .q = from(0),
                         .k = from(1),
                         .v = from(2),
                         .o = of(0),
                         .lse = lse.data(),
                         .q_stride = stride,
                         .k_stride = stride,
                         .v_stride = stride,
                         .o_stride = stride,
                         .workspace = forward.data()},
                        isa, pool_of(2));
      Workspace backward(attention_backward_workspace(p, isa, 2));
      attention_backward({.problem = p,
                          .q = from(0),
                          .k = from(1),
                          .v = from(2),
                          .o = of(0),
                          .dout = from(3),
                          .lse = lse.data(),
                          .dq = of(1),
                          .dk = of(2),
                          .dv = of(3),
                          .q_stride = stride,
                          .k_stride = stride,
                          .v_stride = stride,
                          .o_stride = stride,
                          .dout_stride = stride,
                          .dq_stride = stride,
                          .dk_stride = stride,
                          .dv_stride = stride,
                          .workspace = backward.data()},
                         isa, pool_of(2));
      return std::vector<char>(of(0), of(4));
    };
    const int64_t bytes = row * size_of(both.dtype);
    const std::vector<char> whole = run_rows(0, 2);
    for (int64_t first : {0, 1}) {
      const std::vector<char> alone = run_rows(first, 1);
      for (int64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(0, std::memcmp(whole.data() + (2 * i + first) * bytes, alone.data() + i * bytes,
                                 static_cast<size_t>(bytes)))
            << name(isa) << " " << i;
      }
    }
  }
}

// With values of 1 the output counts the kept probabilities, whose mean is 1.
TEST(Attention, DropoutKeepsTheMean) {
  AttentionProblem p = with_dropout(problem(257, 8, 8, 8, false, 0), 0.4);
  Packed in(p, 1);
  Heads dout(p, 0);
  for (Isa isa : isas_here()) {
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
      for (Isa isa : isas_here()) {
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
    for (Isa isa : isas_here()) {
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
    for (Isa isa : isas_here()) {
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
    for (Isa isa : isas_here()) {
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

// On AMX f32 is multiplied in three parts of bf16, which these numbers do not have.
TEST(Attention, NumbersWithoutPartsAreLeftToVectors) {
  if (detect_isa() != Isa::kAmx) GTEST_SKIP() << "no AMX here";
  for (AttentionProblem p : {problem(514, 20, 4, 2, true, 0), kInChunks[0]}) {
    p.dtype = DType::kF32;
    for (float number : {std::bit_cast<float>(0x7f7f8000u), INFINITY}) {
      for (int operand = 0; operand < 4; ++operand) {
        Packed in = random_inputs(p, 8, 1);
        Heads dout(p, 1);
        const int64_t row = 70;
        if (operand == 3) {
          dout.all.set(row * dout.stride + 5, number);
        } else {
          const int64_t begin[] = {0, in.k, in.v};
          in.all.set(row * in.stride + begin[operand] + 5, number);
        }
        Result tiles = run(p, in, dout, Isa::kAmx, pool_of(2));
        Result vectors = run(p, in, dout, Isa::kAvx512Bf16, pool_of(2));
        auto same = [](const Tensor& a, const Tensor& b) {
          for (int64_t i = 0; i < a.size(); ++i)
            if (!(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))) return false;
          return true;
        };
        SCOPED_TRACE(cat("operand ", operand, ", T=", p.tokens, ", ", number));
        // Each call decides for itself: that of the forward pass does not see dout.
        EXPECT_EQ(same(tiles.o.all, vectors.o.all), operand != 3);
        EXPECT_EQ(same(tiles.lse, vectors.lse), operand != 3);
        if (operand == 3) {
          Result again = vectors;
          again.o = tiles.o, again.lse = tiles.lse;
          run_backward(p, in, dout, again, Isa::kAvx512Bf16, pool_of(2));
          vectors = again;
        }
        EXPECT_TRUE(same(tiles.gradient.all, vectors.gradient.all));
      }
    }
  }
}

TEST(Attention, NothingToDo) {
  AttentionProblem p = problem(0, 64, 2, 1, true, 0);
  for (Isa isa : isas_here()) {
    AttentionForward forward{.problem = p};
    AttentionBackward backward{.problem = p};
    attention_forward(forward, isa, pool_of(2));
    attention_backward(backward, isa, pool_of(2));
  }
}

}  // namespace
}  // namespace tessera::cpu
