// The double of cuDNN computes graphs of operations, and finds calls that cuDNN does not document.
#include <cmath>

#include "backends/cuda/cudnn_api.h"
#include "tests/cuda/emulated_cuda.h"

namespace tessera::cuda {
namespace {

// z = exp(x w) scaled by s, and its sums along rows: x [1, 2, 3, 4], w [1, 1, 4, 5] for both heads,
// s by value, all f32. What a test spoils is spoiled before build() or execute().
struct Graph {
  explicit Graph(uint64_t seed = 1, const char* variant = "checked") : cuda(variant, seed) {
#define TESSERA_LOAD(result, name, member, parameters) cuda.load(#name, member);
    TESSERA_CUDNN_FUNCTIONS(TESSERA_LOAD)
#undef TESSERA_LOAD
    EXPECT_EQ(create(&handle), 0);
    EXPECT_EQ(set_stream(handle, stream), 0);
    for (int i = 0; i < 24; ++i) of_x.push_back(0.1f * static_cast<float>(i % 7 - 3));
    for (int i = 0; i < 20; ++i) of_w.push_back(0.2f * static_cast<float>(i % 5 - 2));
    x = cuda.upload(of_x, stream);
    w = cuda.upload(of_w, stream);
    z = cuda.allocate<float>(32);
    sums = cuda.allocate<float>(8);
    workspace = cuda.allocate<std::byte>(1024);
  }
  ~Graph() {
    for (cudnnDescriptor d : made) destroy_descriptor(d);
  }
#define TESSERA_MEMBER(result, name, member, parameters) result(*member) parameters = nullptr;
  TESSERA_CUDNN_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER

  cudnnDescriptor descriptor(int type) {
    cudnnDescriptor d = nullptr;
    EXPECT_EQ(create_descriptor(type, &d), 0);
    made.push_back(d);
    return d;
  }
  template <class T>
  cudnnStatus set(cudnnDescriptor d, int name, int type, const std::vector<T>& values) {
    return set_attribute(d, name, type, static_cast<int64_t>(values.size()), values.data());
  }
  cudnnStatus refer(cudnnDescriptor d, int name, const std::vector<cudnnDescriptor>& others) {
    return set(d, name, kCudnnTypeDescriptor, others);
  }
  cudnnDescriptor tensor(int64_t id, std::vector<int64_t> dims, std::vector<int64_t> strides,
                         bool is_virtual = false, bool by_value = false) {
    cudnnDescriptor d = descriptor(kCudnnTensor);
    set<int>(d, kCudnnTensorDataType, kCudnnTypeDataType, {kCudnnFloat});
    set(d, kCudnnTensorDims, kCudnnTypeInt64, dims);
    set(d, kCudnnTensorStrides, kCudnnTypeInt64, strides);
    set<int64_t>(d, kCudnnTensorId, kCudnnTypeInt64, {id});
    set<int64_t>(d, kCudnnTensorAlignment, kCudnnTypeInt64, {16});
    set<uint8_t>(d, kCudnnTensorIsVirtual, kCudnnTypeBoolean, {is_virtual});
    set<uint8_t>(d, kCudnnTensorIsByValue, kCudnnTypeBoolean, {by_value});
    status |= finalize(d);
    return d;
  }
  cudnnDescriptor pointwise(int mode, cudnnDescriptor in, cudnnDescriptor b, cudnnDescriptor out) {
    cudnnDescriptor what = descriptor(kCudnnPointwise), o = descriptor(kCudnnOperationPointwise);
    set<int>(what, kCudnnPointwiseMode, kCudnnTypePointwiseMode, {mode});
    set<int>(what, kCudnnPointwisePrecision, kCudnnTypeDataType, {kCudnnFloat});
    status |= finalize(what);
    status |= refer(o, kCudnnPointwiseDescriptor, {what});
    status |= refer(o, kCudnnPointwiseX, {in});
    status |= refer(o, kCudnnPointwiseY, {out});
    if (b) status |= refer(o, kCudnnPointwiseB, {b});
    status |= finalize(o);
    return o;
  }
  cudnnDescriptor product(cudnnDescriptor a, cudnnDescriptor b, cudnnDescriptor c) {
    cudnnDescriptor what = descriptor(kCudnnMatmul), o = descriptor(kCudnnOperationMatmul);
    set<int>(what, kCudnnMatmulPrecision, kCudnnTypeDataType, {kCudnnFloat});
    status |= finalize(what);
    status |= refer(o, kCudnnMatmulDescriptor, {what});
    status |= refer(o, kCudnnMatmulA, {a});
    status |= refer(o, kCudnnMatmulB, {b});
    status |= refer(o, kCudnnMatmulC, {c});
    status |= finalize(o);
    return o;
  }
  cudnnDescriptor sum(cudnnDescriptor in, cudnnDescriptor out) {
    cudnnDescriptor what = descriptor(kCudnnReduction), o = descriptor(kCudnnOperationReduction);
    set<int>(what, kCudnnReductionOperator, kCudnnTypeReduction, {kCudnnReduceAdd});
    set<int>(what, kCudnnReductionPrecision, kCudnnTypeDataType, {kCudnnFloat});
    status |= finalize(what);
    status |= refer(o, kCudnnReductionDescriptor, {what});
    status |= refer(o, kCudnnReductionX, {in});
    status |= refer(o, kCudnnReductionY, {out});
    status |= finalize(o);
    return o;
  }

  // The graph's plan, from the first proposal.
  cudnnStatus build() {
    const std::vector<int64_t> scores{1, 2, 3, 5}, dense{30, 15, 5, 1};
    cudnnDescriptor xt = tensor(1, {1, 2, 3, 4}, {24, 12, 4, 1}),
                    wt = tensor(2, {1, 1, 4, w_columns}, {20, 20, 5, 1}),
                    zt = tensor(3, scores, dense), st = tensor(4, {1, 2, 3, 1}, {6, 3, 1, 1}),
                    scale = tensor(5, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true),
                    between = tensor(10, scores, dense, true), e = tensor(11, scores, dense, true);
    std::vector<cudnnDescriptor> operations{product(xt, wt, between),
                                            pointwise(kCudnnExp, between, nullptr, e),
                                            pointwise(kCudnnMul, e, scale, zt), sum(zt, st)};
    if (leave_out >= 0) operations.erase(operations.begin() + leave_out);
    cudnnDescriptor graph = descriptor(kCudnnOperationGraph);
    status |= refer(graph, kCudnnGraphOperations, operations);
    if (with_handle) set<cudnnHandle>(graph, kCudnnGraphHandle, kCudnnTypeHandle, {handle});
    status |= finalize(graph);
    cudnnDescriptor heuristics = descriptor(kCudnnHeuristics);
    status |= refer(heuristics, kCudnnHeuristicsGraph, {graph});
    set<int>(heuristics, kCudnnHeuristicsMode, kCudnnTypeHeuristicsMode, {kCudnnHeuristicsA});
    status |= finalize(heuristics);
    if (status) return status;
    cudnnDescriptor config = descriptor(kCudnnEngineConfig);
    int64_t count = 0;
    status |= get_attribute(heuristics, kCudnnHeuristicsResults, kCudnnTypeDescriptor, 1, &count,
                            &config);
    plan = descriptor(kCudnnPlan);
    status |= refer(plan, kCudnnPlanConfig, {config});
    set<cudnnHandle>(plan, kCudnnPlanHandle, kCudnnTypeHandle, {handle});
    if (finalize_plan) status |= finalize(plan);
    return status;
  }
  cudnnStatus run() {
    cudnnDescriptor pack = descriptor(kCudnnVariantPack);
    set(pack, kCudnnPackIds, kCudnnTypeInt64, ids);
    set(pack, kCudnnPackPointers, kCudnnTypePointer,
        pointers.empty() ? std::vector<void*>{x, w, z, sums, &factor} : pointers);
    set<void*>(pack, kCudnnPackWorkspace, kCudnnTypePointer, {workspace});
    if (const cudnnStatus failed = finalize(pack)) return failed;
    return execute(handle, plan, pack);
  }
  // Builds and runs; the call that is wrong fails, and is found.
  void expect_wrong(std::string_view words) {
    EXPECT_NE(build() ? status : run(), 0) << words;
    cuda.expect_found(words);
  }

  EmulatedCuda cuda;
  CUstream stream = cuda.make_stream();
  cudnnHandle handle = nullptr;
  std::vector<cudnnDescriptor> made;
  std::vector<float> of_x, of_w;
  float *x = nullptr, *w = nullptr, *z = nullptr, *sums = nullptr;
  std::byte* workspace = nullptr;
  float factor = 3;
  cudnnStatus status = 0;
  cudnnDescriptor plan = nullptr;
  std::vector<int64_t> ids{1, 2, 3, 4, 5};
  std::vector<void*> pointers;
  int64_t w_columns = 5;
  int leave_out = -1;
  bool with_handle = true, finalize_plan = true;
};

TEST(CudnnDouble, ComputesGraphs) {
  for (uint64_t seed : {1, 2, 3}) {
    Graph g(seed);
    ASSERT_EQ(g.build(), 0);
    ASSERT_EQ(g.run(), 0);
    g.factor = 100;  // was read when it was called
    const auto z = g.cuda.download(g.z, 30, g.stream), sums = g.cuda.download(g.sums, 6, g.stream);
    g.cuda.stream_synchronize(g.stream);
    for (size_t row = 0; row < 6; ++row) {
      float sum = 0;
      for (size_t j = 0; j < 5; ++j) {
        float term = 0;
        for (size_t k = 0; k < 4; ++k) term += g.of_x[row * 4 + k] * g.of_w[k * 5 + j];
        EXPECT_EQ(z[row * 5 + j], std::exp(term) * 3.0f);
        sum += z[row * 5 + j];
      }
      EXPECT_EQ(sums[row], sum);
    }
  }
}

TEST(CudnnDouble, FindsWhatIsWrongWithGraphs) {
  {
    Graph g;
    g.w_columns = 4;
    g.expect_wrong("the dims are not those of a product");
  }
  {
    Graph g;
    g.leave_out = 0;
    g.expect_wrong("reads a virtual tensor that no operation before it gives");
  }
  {
    Graph g;
    g.with_handle = false;
    g.expect_wrong("neither handle nor device");
  }
  {
    Graph g;
    g.tensor(1, {2, 3}, {3});
    g.cuda.expect_found("other dims than strides");
    cudnnDescriptor t = g.descriptor(kCudnnTensor);
    EXPECT_NE(g.finalize(t), 0);
    g.cuda.expect_found("is finalized without attribute");
    EXPECT_NE(g.set<int>(t, kCudnnTensorDims, kCudnnTypeInt64 + 1, {1}), 0);
    g.cuda.expect_found("has another type");
    EXPECT_NE(g.set<int>(t, kCudnnMatmulA, kCudnnTypeDescriptor, {1}), 0);
    g.cuda.expect_found("is not one of descriptor");
    cudnnDescriptor o = g.descriptor(kCudnnOperationReshape);
    EXPECT_NE(g.refer(o, kCudnnReshapeX, {t}), 0);
    g.cuda.expect_found("is used before it is finalized");
    cudnnDescriptor whole = g.tensor(7, {1, 2, 3, 4}, {24, 12, 4, 1});
    EXPECT_NE(g.set<int64_t>(whole, kCudnnTensorId, kCudnnTypeInt64, {8}), 0);
    g.cuda.expect_found("of a descriptor that is finalized");
    EXPECT_NE(g.finalize(whole), 0);
    g.cuda.expect_found("finalized twice");
  }
}

TEST(CudnnDouble, FindsWhatIsWrongWithRuns) {
  {
    Graph g;
    g.finalize_plan = false;
    g.expect_wrong("before it is finalized");
  }
  {
    Graph g;
    g.workspace = nullptr;
    g.expect_wrong("the workspace is missing");
  }
  {
    Graph g;
    g.workspace += 64;
    g.expect_wrong("the workspace is not aligned");
  }
  {
    Graph g;
    g.workspace = g.cuda.allocate<std::byte>(128);
    g.expect_wrong("the workspace of cuDNN");
  }
  {
    Graph g;
    g.pointers = {g.workspace, g.w, g.z, g.sums, &g.factor};
    g.expect_wrong("overlaps a tensor");
  }
  {
    Graph g;
    g.pointers = {g.x + 1, g.w, g.z, g.sums, &g.factor};
    g.expect_wrong("not aligned as its descriptor says");
  }
  {
    Graph g;
    g.pointers = {g.x, g.w, g.x, g.sums, &g.factor};
    g.expect_wrong("a tensor of cuDNN");
  }
  {
    Graph g;
    g.pointers = {g.z, g.w, g.z, g.sums, &g.factor};
    g.expect_wrong("a result overlaps another tensor");
  }
  {
    Graph g;
    g.pointers = {g.x, g.w, g.z, g.sums, g.w};
    g.expect_wrong("by value is not in the host's memory");
  }
  {
    Graph g;
    g.ids = {1, 2, 3, 5};
    g.pointers = {g.x, g.w, g.z, &g.factor};
    g.expect_wrong("lacks a tensor of the graph");
  }
  {
    Graph g;
    g.ids = {1, 2, 3, 4, 10};
    g.expect_wrong("a pointer of no tensor of the graph");
  }
  {
    Graph g;
    g.ids = {1, 2, 3, 4, 4};
    g.expect_wrong("stands twice");
  }
}

TEST(CudnnDouble, WorkIsInTheOrderOfItsStream) {
  {  // The stream is not that on which the operands were made.
    Graph g;
    CUstream other = g.cuda.make_stream();
    g.set_stream(g.handle, other);
    ASSERT_EQ(g.build(), 0);
    ASSERT_EQ(g.run(), 0);
    g.cuda.stream_synchronize(other);
    g.cuda.stream_synchronize(g.stream);
    EXPECT_FALSE(g.cuda.take_findings().empty());
  }
  {  // What nobody has written is read.
    Graph g;
    g.pointers = {g.cuda.allocate<float>(24), g.w, g.z, g.sums, &g.factor};
    ASSERT_EQ(g.build(), 0);
    ASSERT_EQ(g.run(), 0);
    g.cuda.stream_synchronize(g.stream);
    g.cuda.expect_found("reads what nobody has written");
  }
  {  // Handles end.
    Graph g;
    ASSERT_EQ(g.build(), 0);
    EXPECT_EQ(g.destroy(g.handle), 0);
    EXPECT_NE(g.run(), 0);
    g.cuda.expect_found("there is no such handle");
  }
}

TEST(CudnnDouble, IsRecorded) {
  Graph g;
  ASSERT_EQ(g.build(), 0);
  ASSERT_EQ(g.cuda.stream_begin_capture(g.stream, kStreamCaptureModeThreadLocal), 0);
  ASSERT_EQ(g.run(), 0);
  CUgraph recorded = nullptr;
  CUgraphExec executable = nullptr;
  ASSERT_EQ(g.cuda.stream_end_capture(g.stream, &recorded), 0);
  ASSERT_EQ(g.cuda.graph_instantiate(&executable, recorded, 0), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(g.cuda.graph_launch(executable, g.stream), 0);
  const auto z = g.cuda.download(g.z, 30, g.stream);
  g.cuda.stream_synchronize(g.stream);
  EXPECT_GT(z[0], 0);
}

TEST(CudnnDouble, PlansAreNotMadeInACapture) {
  Graph g;
  ASSERT_EQ(g.cuda.stream_begin_capture(g.stream, kStreamCaptureModeThreadLocal), 0);
  EXPECT_NE(g.build(), 0);
  g.cuda.expect_found("finalizing a plan of cuDNN is not allowed while a stream is captured");
  CUgraph recorded = nullptr;
  EXPECT_NE(g.cuda.stream_end_capture(g.stream, &recorded), 0);
  g.cuda.take_findings();
}

}  // namespace
}  // namespace tessera::cuda
