#pragma once
#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "backends/cuda/cuda_backend.h"
#include "base/error.h"
#include "base/float16.h"
#include "base/random.h"
#include "base/text.h"
#include "programs/programs.h"

// What benchmarks of a GPU share: their command lines, jobs of known size, operands on the device,
// times by its events.
namespace tessera::bench {

using namespace cuda;

// main() of a benchmark whose words are pairs "--name value": take(name, value) says whether there
// is such an option, then run() gives the exit status. 2 for errors.
template <class Take, class Run>
int benchmark_main(const char* program, const char* help, std::span<char* const> words, Take take,
                   Run run) {
  try {
    for (size_t i = 1; i < words.size(); i += 2) {
      const std::string name = words[i];
      if (name == "--help") {
        std::fputs(help, stdout);
        return 0;
      }
      if (i + 1 == words.size()) throw UserError(cat(name, " needs a value; --help says which"));
      const std::string value = words[i + 1];
      if (!take(name, value))
        throw UserError(cat("no option ", name, " ", value, "; --help says which there are"));
    }
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 2;
  }
}

// What all of them are told.
struct JobSettings {
  std::string size = "llama1b";
  DType compute = DType::kBF16;

  bool take(const std::string& name, const std::string& value) {
    if (name == "--size")
      size = value;
    else if (name == "--dtype" && (value == "bf16" || value == "f32"))
      compute = value == "bf16" ? DType::kBF16 : DType::kF32;
    else
      return false;
    return true;
  }
};

struct Job {
  ModelConfig model;
  ProgramOptions options;
};

inline Job job_of(const JobSettings& settings) {
  struct Size {
    const char* name;
    ModelType type;
    int64_t width, heads, kv_heads, hidden, vocabulary, batch, length;
    double dropout;
  };
  constexpr ModelType kLlama = ModelType::kLlamaV2, kGpt2 = ModelType::kGpt2;
  constexpr Size kSizes[] = {{"tiny", kLlama, 32, 4, 2, 64, 300, 2, 16, 0},
                             {"tiny_gpt2", kGpt2, 32, 4, 4, 128, 300, 2, 16, 0.1},
                             {"llama1b", kLlama, 2048, 32, 8, 8192, 128256, 4, 2048, 0},
                             {"llama3b", kLlama, 3072, 24, 8, 8192, 128256, 2, 2048, 0},
                             {"gpt2", kGpt2, 768, 12, 12, 3072, 50257, 16, 1024, 0.1}};
  std::string names;
  for (const Size& s : kSizes) {
    names += cat(names.empty() ? "" : ", ", s.name);
    if (s.name != settings.size) continue;
    Job job{.model = family_defaults(s.type)};
    job.model.hidden_width = s.width;
    job.model.num_layers = 2;
    job.model.num_heads = s.heads;
    job.model.num_key_value_heads = s.kv_heads;
    job.model.intermediate_size = s.hidden;
    job.model.vocab_size = s.vocabulary;
    job.model.max_context_width = s.length;
    job.model.bias = s.type == kGpt2;
    job.model.resid_pdrop = job.model.embd_pdrop = job.model.attn_pdrop = s.dropout;
    derive_shape(job.model);
    job.options.batch = job.options.validation_batch = s.batch;
    job.options.length = s.length;
    job.options.compute = settings.compute;
    job.options.accumulates = true;
    return job;
  }
  throw UserError(cat("--size ", settings.size, ": there are ", names));
}

// Numbers that every op accepts: small floats, ids below `bound`, true flags, counters of 1. A
// pattern that repeats, so that large buffers are soon filled.
inline std::string pattern(const TensorType& type, int64_t bound) {
  std::string bytes;
  const int64_t n = std::min<int64_t>(type.elements(), 1 << 18);
  auto append = [&](auto v) { bytes.append(reinterpret_cast<const char*>(&v), sizeof v); };
  for (int64_t i = 0; i < n; ++i) {
    const auto index = static_cast<uint64_t>(i);
    const double x = random_uniform(3, 1, index) - 0.5;
    switch (type.dtype) {
      case DType::kF64: append(x); break;
      case DType::kF32: append(static_cast<float>(x)); break;
      case DType::kBF16: append(BF16(static_cast<float>(x))); break;
      case DType::kF16: append(F16(static_cast<float>(x))); break;
      case DType::kI32:
        append(static_cast<int32_t>(random_below(3, 2, index, static_cast<uint64_t>(bound))));
        break;
      case DType::kI64: append(type.shape.empty() ? int64_t{1} : i); break;
      case DType::kBool: append(uint8_t{1}); break;
    }
  }
  return bytes;
}

// Device memory that goes with the object.
class Buffers {
 public:
  explicit Buffers(CudaDevice& device) : device_(device) {}
  ~Buffers() {
    for (void* memory : memory_) device_.free(memory);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  void* make(int64_t bytes) {
    memory_.push_back(device_.allocate(std::max<int64_t>(bytes, 64), "operands"));
    return memory_.back();
  }
  void* filled(const TensorType& type, int64_t bound) {
    auto* memory = static_cast<std::byte*>(make(type.bytes()));
    const std::string content = pattern(type, bound);
    const Driver& driver = device_.driver();
    for (int64_t at = 0; at < type.bytes(); at += std::ssize(content))
      driver.call(driver.copy_to_device, reinterpret_cast<CUdeviceptr>(memory + at),
                  static_cast<const void*>(content.data()),
                  static_cast<size_t>(std::min(std::ssize(content), type.bytes() - at)),
                  device_.stream());
    device_.finish();
    return memory;
  }

 private:
  CudaDevice& device_;
  std::vector<void*> memory_;
};

// An event that takes times.
class Clock {
 public:
  explicit Clock(const Driver& driver) : driver_(driver) {
    driver_.call(driver_.event_create, &event_, kEventDefault);
  }
  ~Clock() { driver_.release(driver_.event_destroy, event_); }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  void record(CUstream stream) { driver_.call(driver_.event_record, event_, stream); }
  double seconds_since(const Clock& begin) const {
    float milliseconds = 0;
    driver_.call(driver_.event_elapsed_time, &milliseconds, begin.event_, event_);
    return milliseconds * 1e-3;
  }

 private:
  const Driver& driver_;
  CUevent event_ = nullptr;
};

// Median of `repeats` runs behind `warm_ups`, with `scratch` written before each of them: as large
// as the second-level cache, it leaves no operand there.
template <class Run>
double median_seconds(CudaDevice& device, void* scratch, int64_t scratch_bytes, int warm_ups,
                      int repeats, Run run) {
  Clock begin(device.driver()), end(device.driver());
  std::vector<double> seconds;
  for (int r = 0; r < warm_ups + repeats; ++r) {
    device.fill(scratch, scratch_bytes);
    begin.record(device.stream());
    run();
    end.record(device.stream());
    device.finish();
    if (r >= warm_ups) seconds.push_back(end.seconds_since(begin));
  }
  std::ranges::nth_element(seconds, seconds.begin() + std::ssize(seconds) / 2);
  return seconds[seconds.size() / 2];
}

}  // namespace tessera::bench
