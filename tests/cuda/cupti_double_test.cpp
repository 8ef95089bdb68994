// The double of CUPTI: what it hands out, and each rule of its use broken.
#include <cstdlib>

#include "backends/cuda/cupti_api.h"
#include "tests/cuda/emulated_cuda.h"

namespace tessera::cuda {
namespace {

// What came back in buffers.
struct CuptiReceived {
  std::vector<CuptiKernel> kernels;
  std::vector<CuptiMemcpy> copies;
  std::vector<CuptiMemset> fills;
  std::vector<CuptiExternalCorrelation> numbers;
  int calls = 0, buffers_out = 0;
  size_t size = 4096, misplaced = 0;  // of buffers that are given; bytes off their alignment
  bool none = false;                  // no buffer is given
};
CuptiReceived received;
CUptiResult (*next_record)(uint8_t*, size_t, CuptiRecord**) = nullptr;

void give_buffer(uint8_t** buffer, size_t* size, size_t* most) {
  *buffer = nullptr;
  if (!received.none) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, received.size)) + received.misplaced;
    ++received.buffers_out;
  }
  *size = received.size - received.misplaced;
  *most = 0;
}

void take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CuptiRecord* record = nullptr;
  while (next_record(buffer, valid, &record) == kCuptiSuccess) {
    const void* at = record;
    if (record->kind == kCuptiConcurrentKernel)
      received.kernels.push_back(*static_cast<const CuptiKernel*>(at));
    else if (record->kind == kCuptiMemcpy)
      received.copies.push_back(*static_cast<const CuptiMemcpy*>(at));
    else if (record->kind == kCuptiMemset)
      received.fills.push_back(*static_cast<const CuptiMemset*>(at));
    else if (record->kind == kCuptiExternalCorrelation)
      received.numbers.push_back(*static_cast<const CuptiExternalCorrelation*>(at));
    else
      ++received.calls;
  }
  --received.buffers_out;
  std::free(buffer);
}

class CuptiDouble : public testing::Test {
 protected:
  CuptiDouble() {
#define TESSERA_LOAD(name, member, parameters) emulated_.load(#name, member);
    TESSERA_CUPTI_FUNCTIONS(TESSERA_LOAD)
#undef TESSERA_LOAD
    received = {};
    next_record = get_next_record;
    stream_ = emulated_.make_stream();
  }
  void start() {
    EXPECT_EQ(register_callbacks(&give_buffer, &take_buffer), kCuptiSuccess);
    for (const int kind : kKinds) EXPECT_EQ(enable(kind), kCuptiSuccess);
  }
  void stop() {
    for (const int kind : kKinds) EXPECT_EQ(disable(kind), kCuptiSuccess);
    EXPECT_EQ(received.buffers_out, 0);
  }
  static constexpr int kKinds[] = {kCuptiExternalCorrelation, kCuptiDriver, kCuptiConcurrentKernel,
                                   kCuptiMemcpy, kCuptiMemset};
#define TESSERA_MEMBER(name, member, parameters) CUptiResult(*member) parameters = nullptr;
  TESSERA_CUPTI_FUNCTIONS(TESSERA_MEMBER)
#undef TESSERA_MEMBER
  EmulatedCuda emulated_;
  CUstream stream_ = nullptr;
};

TEST_F(CuptiDouble, HandsOutWhatTheDeviceDidWithTheNumbersOfItsCalls) {
  start();
  auto* memory = emulated_.allocate<float>(1000);
  uint64_t before = 0, after = 0, last = 0;
  EXPECT_EQ(get_timestamp(&before), kCuptiSuccess);
  EXPECT_EQ(push_external(kCuptiCorrelationCustom0, 7), kCuptiSuccess);
  EXPECT_EQ(emulated_.fill_bytes(EmulatedCuda::address(memory), 0, 4000, stream_), kCudaSuccess);
  EXPECT_EQ(pop_external(kCuptiCorrelationCustom0, &last), kCuptiSuccess);
  EXPECT_EQ(last, 7u);
  EXPECT_EQ(emulated_.copy_on_device(EmulatedCuda::address(memory + 500),
                                     EmulatedCuda::address(memory), 400, stream_),
            kCudaSuccess);
  EXPECT_EQ(flush_all(0), kCuptiSuccess);
  EXPECT_TRUE(received.fills.empty()) << "the device has not done it yet";
  EXPECT_EQ(emulated_.stream_synchronize(stream_), kCudaSuccess);
  EXPECT_EQ(get_timestamp(&after), kCuptiSuccess);
  EXPECT_EQ(flush_all(0), kCuptiSuccess);
  ASSERT_EQ(received.fills.size(), 1u);
  ASSERT_EQ(received.copies.size(), 1u);
  ASSERT_EQ(received.numbers.size(), 1u);
  EXPECT_EQ(received.fills[0].bytes, 4000u);
  EXPECT_EQ(received.copies[0].bytes, 400u);
  EXPECT_EQ(received.copies[0].copy_kind, kCuptiCopyOnDevice);
  EXPECT_EQ(received.numbers[0].external, 7u);
  EXPECT_EQ(received.numbers[0].correlation, received.fills[0].correlation);
  EXPECT_NE(received.numbers[0].correlation, received.copies[0].correlation);
  EXPECT_LE(before, received.fills[0].start);
  EXPECT_LE(received.fills[0].end, received.copies[0].start);
  EXPECT_LE(received.copies[0].end, after);
  EXPECT_EQ(received.calls, 2);
  stop();
  EXPECT_EQ(emulated_.mem_free(EmulatedCuda::address(memory)), kCudaSuccess);
}

TEST_F(CuptiDouble, FindsCallsInAWrongOrder) {
  EXPECT_EQ(enable(kCuptiMemset), kCuptiErrorNotInitialized);
  emulated_.expect_found("enabled before callbacks");
  EXPECT_EQ(flush_all(0), kCuptiErrorInvalidOperation);
  emulated_.expect_found("flushed before callbacks");
  EXPECT_EQ(push_external(kCuptiCorrelationCustom0, 1), kCuptiSuccess);
  emulated_.expect_found("nobody takes records of them");
  EXPECT_EQ(pop_external(kCuptiCorrelationCustom0, nullptr), kCuptiSuccess);
  start();
  EXPECT_EQ(pop_external(kCuptiCorrelationCustom0, nullptr), kCuptiErrorQueueEmpty);
  emulated_.expect_found("an external number is ended that was not begun");
  static_cast<void>(enable(kCuptiMemset));
  emulated_.expect_found("enabled twice");
  static_cast<void>(register_callbacks(&give_buffer, &take_buffer));
  emulated_.expect_found("while records are taken");
  stop();
  static_cast<void>(disable(kCuptiMemset));
  emulated_.expect_found("disabled that is not enabled");
}

TEST_F(CuptiDouble, FindsBuffersThatAreNoGood) {
  start();
  auto* memory = emulated_.allocate<float>(10);
  auto flush_work = [&] {
    EXPECT_EQ(emulated_.fill_bytes(EmulatedCuda::address(memory), 0, 40, stream_), kCudaSuccess);
    EXPECT_EQ(emulated_.stream_synchronize(stream_), kCudaSuccess);
    EXPECT_EQ(flush_all(0), kCuptiSuccess);
  };
  received.none = true;
  flush_work();
  emulated_.expect_found("a buffer that is none");
  received.none = false;
  received.size = 64;
  flush_work();
  emulated_.expect_found("too small");
  uint8_t own[64];
  CuptiRecord* record = nullptr;
  EXPECT_EQ(get_next_record(own, sizeof own, &record), kCuptiErrorInvalidParameter);
  emulated_.expect_found("of a buffer that is not theirs");
  received = {};
  stop();
  EXPECT_EQ(emulated_.mem_free(EmulatedCuda::address(memory)), kCudaSuccess);
}

TEST_F(CuptiDouble, FindsWhatIsLeftOpen) {
  start();
  EXPECT_EQ(push_external(kCuptiCorrelationCustom0, 1), kCuptiSuccess);
  emulated_.reset(1, 1, 1 << 20);
  const auto findings = emulated_.take_findings();
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0], "CUPTI: external numbers are left open");
  EXPECT_EQ(findings[1], "CUPTI: kinds of records are still enabled at the end");
  EXPECT_EQ(pop_external(kCuptiCorrelationCustom0, nullptr), kCuptiSuccess);
}

}  // namespace
}  // namespace tessera::cuda
