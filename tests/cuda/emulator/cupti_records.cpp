#include "cupti_records.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "backends/cuda/cupti_api.h"
#include "emulated_gpu.h"
#include "findings.h"

namespace tessera::emulated_gpu {
namespace {

using namespace cuda;

// A program that takes CUPTI's clock for its own is far off.
constexpr int64_t kClockOffset = int64_t{7'000'000} * 1'000'000'000;
// Later versions of records are longer than what a program reads of them.
constexpr size_t kRecordBytes = 208;

struct Library {
  std::mutex mutex;
  CuptiBufferRequested requested = nullptr;
  CuptiBufferCompleted completed = nullptr;
  std::set<int> enabled;
  std::vector<std::vector<uint8_t>> records;
  std::set<std::string> names;           // of kernels, as long as the process lives
  std::map<const uint8_t*, size_t> out;  // buffers whose records may be read now
  int64_t open_numbers = 0;
  int refuses = 0;
  uint32_t next_correlation = 1;
};
Library& library() {
  static auto* only = new Library;
  return *only;
}
std::atomic<int64_t> calls = 0;
thread_local std::vector<uint64_t> numbers;
thread_local uint32_t current_call = 0;

template <class Record>
void add(const Record& record) {
  std::vector<uint8_t> bytes(kRecordBytes);
  std::memcpy(bytes.data(), &record, sizeof record);
  library().records.push_back(std::move(bytes));
}

bool listens() { return !library().enabled.empty(); }

CUptiResult misuse(const std::string& what, CUptiResult result) {
  found("CUPTI: " + what);
  return result;
}

// Fills buffers of the program, outside of the lock: it does what it likes with them.
void hand_out(std::vector<std::vector<uint8_t>> records, CuptiBufferRequested requested,
              CuptiBufferCompleted completed) {
  Library& l = library();
  for (size_t first = 0; first < records.size();) {
    uint8_t* buffer = nullptr;
    size_t size = 0, most = 0;
    requested(&buffer, &size, &most);
    if (!buffer || size < kRecordBytes || reinterpret_cast<uintptr_t>(buffer) % 8 != 0) {
      found("CUPTI: a buffer that is none, too small, or not at a multiple of 8");
      return;
    }
    size_t count = std::min(records.size() - first, size / kRecordBytes);
    if (most > 0) count = std::min(count, most);
    for (size_t n = 0; n < count; ++n)
      std::memcpy(buffer + n * kRecordBytes, records[first + n].data(), kRecordBytes);
    first += count;
    {
      const std::lock_guard lock(l.mutex);
      l.out[buffer] = count * kRecordBytes;
    }
    completed(nullptr, 0, buffer, size, count * kRecordBytes);
    const std::lock_guard lock(l.mutex);
    l.out.erase(buffer);
  }
}

}  // namespace

int64_t cupti_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
             .count() +
         kClockOffset;
}

CuptiCall::CuptiCall(bool numbered) : outermost_(current_call == 0) {
  Library& l = library();
  const std::lock_guard lock(l.mutex);
  if (!outermost_ || !listens()) return;
  current_call = l.next_correlation++;
  if (!l.enabled.contains(kCuptiDriver) && !l.enabled.contains(kCuptiRuntime)) return;
  if (numbered && !numbers.empty() && l.enabled.contains(kCuptiExternalCorrelation))
    add(CuptiExternalCorrelation{kCuptiExternalCorrelation, kCuptiCorrelationCustom0,
                                 numbers.back(), current_call, 0});
  add(CuptiRecord{l.enabled.contains(kCuptiDriver) ? kCuptiDriver : kCuptiRuntime});
}

CuptiCall::~CuptiCall() {
  if (outermost_) current_call = 0;
}

uint32_t CuptiCall::current() { return current_call; }

void note_work(uint32_t correlation, const std::string& label, int device, int stream,
               int64_t begin, int64_t end, const std::vector<Range>& ranges) {
  Library& l = library();
  const std::lock_guard lock(l.mutex);
  if (correlation == 0 || !listens()) return;
  int64_t bytes = 0;
  for (const Range& range : ranges) bytes = std::max(bytes, range.bytes);
  const auto finish = [&](auto& record) {
    record.start = static_cast<uint64_t>(begin);
    record.end = static_cast<uint64_t>(end);
    record.device = static_cast<uint32_t>(device);
    record.stream = static_cast<uint32_t>(stream);
    record.correlation = correlation;
    add(record);
  };
  if (label.starts_with("copy ")) {
    if (!l.enabled.contains(kCuptiMemcpy)) return;
    CuptiMemcpy record{};
    record.kind = kCuptiMemcpy;
    record.copy_kind = label == "copy to the device" ? kCuptiCopyToDevice
                       : label == "copy to the host" ? kCuptiCopyToHost
                                                     : kCuptiCopyOnDevice;
    record.bytes = static_cast<uint64_t>(bytes);
    finish(record);
  } else if (label == "fill") {
    if (!l.enabled.contains(kCuptiMemset)) return;
    CuptiMemset record{};
    record.kind = kCuptiMemset;
    record.bytes = static_cast<uint64_t>(bytes);
    finish(record);
  } else {
    if (!l.enabled.contains(kCuptiConcurrentKernel)) return;
    CuptiKernel record{};
    record.kind = kCuptiConcurrentKernel;
    record.name = l.names.insert(label).first->c_str();
    finish(record);
  }
}

void reset_cupti() {
  Library& l = library();
  const std::lock_guard lock(l.mutex);
  if (!l.enabled.empty()) found("CUPTI: kinds of records are still enabled at the end");
  if (l.open_numbers != 0) found("CUPTI: external numbers are left open");
  l.enabled.clear();
  l.records.clear();
  l.requested = nullptr;
  l.completed = nullptr;
  l.open_numbers = 0;
  l.refuses = 0;
  calls = 0;
}

}  // namespace tessera::emulated_gpu

using namespace tessera::emulated_gpu;
using namespace tessera::cuda;

extern "C" {
#pragma GCC visibility push(default)

CUptiResult cuptiGetVersion(uint32_t* version) {
  ++calls;
  *version = 130001;
  return kCuptiSuccess;
}
CUptiResult cuptiGetTimestamp(uint64_t* nanoseconds) {
  ++calls;
  *nanoseconds = static_cast<uint64_t>(cupti_clock());
  return kCuptiSuccess;
}
CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  ++calls;
  *text = result == kCuptiErrorMultipleSubscribers
              ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
              : "CUPTI_ERROR_UNKNOWN";
  return kCuptiSuccess;
}
CUptiResult cuptiActivityRegisterCallbacks(CuptiBufferRequested requested,
                                           CuptiBufferCompleted completed) {
  ++calls;
  Library& l = library();
  const std::lock_guard lock(l.mutex);
  if (!requested || !completed) return misuse("no callbacks", kCuptiErrorInvalidParameter);
  if (listens()) found("CUPTI: callbacks are registered while records are taken");
  l.requested = requested;
  l.completed = completed;
  return kCuptiSuccess;
}
CUptiResult cuptiActivityEnable(int kind) {
  ++calls;
  Library& l = library();
  const std::lock_guard lock(l.mutex);
  if (l.refuses) return l.refuses;
  if (!l.requested) return misuse("enabled before callbacks", kCuptiErrorNotInitialized);
  if (kind <= 0 || kind > 54) return misuse("no such kind of record", kCuptiErrorInvalidKind);
  if (!l.enabled.insert(kind).second) found("CUPTI: a kind of record is enabled twice");
  return kCuptiSuccess;
}
CUptiResult cuptiActivityDisable(int kind) {
  ++calls;
  Library& l = library();
  const std::lock_guard lock(l.mutex);
  if (l.enabled.erase(kind) == 0) found("CUPTI: a kind of record is disabled that is not enabled");
  return kCuptiSuccess;
}
CUptiResult cuptiActivityFlushAll(uint32_t flags) {
  ++calls;
  Library& l = library();
  std::vector<std::vector<uint8_t>> records;
  {
    const std::lock_guard lock(l.mutex);
    if (!l.requested) return misuse("flushed before callbacks", kCuptiErrorInvalidOperation);
    if (flags > kCuptiFlushForced) found("CUPTI: flags of a flush that are none");
    records.swap(l.records);
  }
  hand_out(std::move(records), l.requested, l.completed);
  return kCuptiSuccess;
}
CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, CuptiRecord** record) {
  ++calls;
  Library& l = library();
  const std::lock_guard lock(l.mutex);
  const auto known = l.out.find(buffer);
  if (known == l.out.end() || known->second != valid)
    return misuse("records are read of a buffer that is not theirs", kCuptiErrorInvalidParameter);
  auto* next = *record ? reinterpret_cast<uint8_t*>(*record) + kRecordBytes : buffer;
  if (next >= buffer + valid) return kCuptiErrorMaxLimitReached;
  *record = reinterpret_cast<CuptiRecord*>(next);
  return kCuptiSuccess;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  ++calls;
  *dropped = 0;
  return kCuptiSuccess;
}
CUptiResult cuptiActivityPushExternalCorrelationId(int kind, uint64_t id) {
  ++calls;
  Library& l = library();
  const std::lock_guard lock(l.mutex);
  if (kind != kCuptiCorrelationCustom0)
    return misuse("external numbers of another kind", kCuptiErrorInvalidParameter);
  if (!l.enabled.contains(kCuptiExternalCorrelation))
    found("CUPTI: external numbers while nobody takes records of them");
  ++l.open_numbers;
  numbers.push_back(id);
  return kCuptiSuccess;
}
CUptiResult cuptiActivityPopExternalCorrelationId(int kind, uint64_t* last) {
  ++calls;
  Library& l = library();
  const std::lock_guard lock(l.mutex);
  if (kind != kCuptiCorrelationCustom0 || numbers.empty())
    return misuse("an external number is ended that was not begun", kCuptiErrorQueueEmpty);
  if (last) *last = numbers.back();
  numbers.pop_back();
  --l.open_numbers;
  return kCuptiSuccess;
}

// Of the driver, for profilers that capture what lies between the two.
static std::atomic<int> captures = 0;
CUresult cuProfilerStart() {
  if (++captures != 1) found("cuProfilerStart: twice");
  return kCudaSuccess;
}
CUresult cuProfilerStop() {
  if (--captures != 0) found("cuProfilerStop: without cuProfilerStart");
  return kCudaSuccess;
}

int64_t tessera_emulated_gpu_cupti_calls(void) { return calls; }
void tessera_emulated_gpu_refuse_cupti(int error) {
  const std::lock_guard lock(library().mutex);
  library().refuses = error;
}

#pragma GCC visibility pop
}  // extern "C"
