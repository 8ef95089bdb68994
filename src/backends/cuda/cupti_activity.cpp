#include "backends/cuda/cupti_activity.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

// The toolkit keeps it beside its other libraries, where the loader seldom looks.
constexpr const char* kCuptiNames[] = {"libcupti.so.13", "libcupti.so.12",
                                       "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
                                       "/usr/local/cuda/lib64/libcupti.so"};
constexpr int kCuptiKinds[] = {kCuptiExternalCorrelation, kCuptiDriver, kCuptiRuntime,
                               kCuptiConcurrentKernel,    kCuptiMemcpy, kCuptiMemset};
// Of about 8000 records; CUPTI asks for another where one is full.
constexpr size_t kCuptiBufferBytes = size_t{1} << 20;
constexpr std::align_val_t kCuptiBufferAlignment{8};
constexpr size_t kLongestKernelName = 160;

// What callbacks of the library, which carry nothing, belong to.
CuptiActivity* active_activity = nullptr;
std::mutex active_activity_mutex;

std::string readable_kernel(const char* name) {
  if (!name) return "a kernel";
  int status = 0;
  char* plain = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string text = status == 0 && plain ? plain : name;
  std::free(plain);
  if (text.size() > kLongestKernelName) text.resize(kLongestKernelName);
  return text;
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case kCuptiCopyToDevice: return "copy to the device";
    case kCuptiCopyToHost: return "copy to the host";
    case kCuptiCopyOnDevice: return "copy on the device";
    default: return "copy";
  }
}

// A record as far as it is declared here; its fields need not be aligned.
template <class Record>
Record record_as(const CuptiRecord* at) {
  Record record;
  std::memcpy(&record, at, sizeof record);
  return record;
}

}  // namespace

const Cupti& Cupti::get() {
  static const Cupti& library = *new Cupti;
  return library;
}

Cupti::Cupti() : library_("CUPTI", kCuptiNames) {
#define TESSERA_LOAD(library_name, own_name, parameters) library_.load(own_name);
  TESSERA_CUPTI_FUNCTIONS(TESSERA_LOAD)
#undef TESSERA_LOAD
}

std::string Cupti::version() const {
  uint32_t number = 0;
  return get_version(&number) == kCuptiSuccess ? cat(number) : "unknown";
}

std::string Cupti::text_of(CUptiResult result) const {
  const char* text = nullptr;
  if (get_result_string(result, &text) != kCuptiSuccess || !text) text = "an error";
  const char* hint =
      result == kCuptiErrorMultipleSubscribers ? ", another profiler is at work in this process"
      : result == kCuptiErrorInsufficientPrivileges ? ", this system lets no user profile"
                                                    : "";
  return cat(text, " (CUPTI's error ", result, hint, ")");
}

std::shared_ptr<CuptiActivity> CuptiActivity::share() {
  static std::mutex guard;
  static std::weak_ptr<CuptiActivity> shared;
  const std::lock_guard lock(guard);
  std::shared_ptr<CuptiActivity> activity = shared.lock();
  if (activity) return activity;
  activity.reset(new CuptiActivity);
  shared = activity;
  return activity;
}

CuptiActivity::CuptiActivity() : library_(Cupti::get()) {
  {
    const std::lock_guard lock(active_activity_mutex);
    active_activity = this;
  }
  auto require = [&](const char* call, CUptiResult result, size_t enabled) {
    if (result == kCuptiSuccess) return;
    disable(enabled);
    throw DeviceError(cat("CUPTI: ", call, ": ", library_.text_of(result)));
  };
  require("cuptiActivityRegisterCallbacks", library_.register_callbacks(&requested, &completed), 0);
  size_t enabled = 0;
  for (const int kind : kCuptiKinds) {
    require("cuptiActivityEnable", library_.enable(kind), enabled);
    ++enabled;
  }
}

CuptiActivity::~CuptiActivity() { disable(std::size(kCuptiKinds)); }

void CuptiActivity::disable(size_t kinds) noexcept {
  for (size_t k = 0; k < kinds; ++k) static_cast<void>(library_.disable(kCuptiKinds[k]));
  // Buffers come back now, with what nobody has asked for.
  if (kinds > 0) static_cast<void>(library_.flush_all(kCuptiFlushForced));
  const std::lock_guard lock(active_activity_mutex);
  active_activity = nullptr;
}

uint64_t CuptiActivity::reserve(size_t count) {
  const std::lock_guard lock(mutex_);
  const uint64_t first = next_;
  next_ += count;
  return first;
}

void CuptiActivity::begin_number(uint64_t number) {
  static_cast<void>(library_.push_external(kCuptiCorrelationCustom0, number));
}

void CuptiActivity::end_number() {
  static_cast<void>(library_.pop_external(kCuptiCorrelationCustom0, nullptr));
}

std::vector<CuptiActivity::Work> CuptiActivity::take(uint64_t first, size_t count) {
  const CUptiResult flushed = library_.flush_all(0);
  if (flushed != kCuptiSuccess)
    throw DeviceError(cat("CUPTI: cuptiActivityFlushAll: ", library_.text_of(flushed)));
  uint64_t theirs = 0;
  const int64_t before = monotonic_nanoseconds();
  const CUptiResult asked = library_.get_timestamp(&theirs);
  const int64_t own = before + (monotonic_nanoseconds() - before) / 2;
  if (asked != kCuptiSuccess)
    throw DeviceError(cat("CUPTI: cuptiGetTimestamp: ", library_.text_of(asked)));
  const int64_t offset = own - static_cast<int64_t>(theirs);
  std::vector<Work> works;
  const std::lock_guard lock(mutex_);
  auto taken = [&](Seen& seen) {
    const auto known = numbers_.find(seen.correlation);
    if (known == numbers_.end() || known->second < first || known->second >= first + count)
      return false;
    works.push_back(
        {known->second,
         {static_cast<int64_t>(seen.start) + offset, static_cast<int64_t>(seen.end) + offset},
         std::move(seen.name),
         seen.bytes});
    return true;
  };
  std::erase_if(seen_, taken);
  std::erase_if(numbers_, [&](const auto& entry) {
    return entry.second >= first && entry.second < first + count;
  });
  std::stable_sort(works.begin(), works.end(),
                   [](const Work& a, const Work& b) { return a.at.begin < b.at.begin; });
  return works;
}

void CuptiActivity::requested(uint8_t** buffer, size_t* size, size_t* most_records) {
  *buffer =
      static_cast<uint8_t*>(::operator new(kCuptiBufferBytes, kCuptiBufferAlignment, std::nothrow));
  *size = *buffer ? kCuptiBufferBytes : 0;
  *most_records = 0;  // as many as there is room for
}

void CuptiActivity::completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  {
    const std::lock_guard lock(active_activity_mutex);
    if (active_activity && valid > 0) active_activity->read(buffer, valid);
  }
  ::operator delete(buffer, kCuptiBufferAlignment);
}

void CuptiActivity::read(uint8_t* buffer, size_t valid) {
  const std::lock_guard lock(mutex_);
  CuptiRecord* record = nullptr;
  while (library_.get_next_record(buffer, valid, &record) == kCuptiSuccess) {
    if (record->kind == kCuptiExternalCorrelation) {
      const auto r = record_as<CuptiExternalCorrelation>(record);
      if (r.external_kind == kCuptiCorrelationCustom0) numbers_[r.correlation] = r.external;
    } else if (record->kind == kCuptiConcurrentKernel) {
      const auto r = record_as<CuptiKernel>(record);
      if (r.end > 0) seen_.push_back({r.correlation, r.start, r.end, readable_kernel(r.name), 0});
    } else if (record->kind == kCuptiMemcpy) {
      const auto r = record_as<CuptiMemcpy>(record);
      seen_.push_back(
          {r.correlation, r.start, r.end, copy_name(r.copy_kind), static_cast<int64_t>(r.bytes)});
    } else if (record->kind == kCuptiMemset) {
      const auto r = record_as<CuptiMemset>(record);
      seen_.push_back({r.correlation, r.start, r.end, "fill", static_cast<int64_t>(r.bytes)});
    }
  }
  size_t dropped = 0;
  if (library_.get_dropped(nullptr, 0, &dropped) == kCuptiSuccess && dropped > 0)
    TESSERA_WARN(cat("CUPTI dropped ", dropped, " records: times of the profile are missing"));
}

}  // namespace tessera::cuda
