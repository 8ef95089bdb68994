#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ordering.h"

// The double of CUPTI: notes what the device does while a program has it enabled, and hands it out
// in the program's buffers as NVIDIA's library does.
namespace tessera::emulated_gpu {

// A call of the driver or of a library on it that may enqueue work, while it lives. All work that
// is enqueued meanwhile has its number.
class CuptiCall {
 public:
  // `numbered`: made by the thread that the program numbers its calls on.
  explicit CuptiCall(bool numbered = true);
  ~CuptiCall();
  CuptiCall(const CuptiCall&) = delete;
  CuptiCall& operator=(const CuptiCall&) = delete;
  // Of the call that is made now; 0: none, or nobody listens.
  static uint32_t current();

 private:
  bool outermost_;
};

// Nanoseconds as they stand in records.
int64_t cupti_clock();
// A piece of work is done: a copy or a fill by its label, else a kernel.
void note_work(uint32_t correlation, const std::string& label, int device, int stream,
               int64_t begin, int64_t end, const std::vector<Range>& ranges);
// A new machine: whoever still has it enabled has left something undone.
void reset_cupti();

}  // namespace tessera::emulated_gpu
