#pragma once

namespace tessera {

// Names for moments of this thread in the tool that watches the process, as Nsight Systems does: it
// names a library by the variable NVTX_INJECTION64_PATH, which fills in the functions to be called.
// That is how NVTX 3 finds its tools; nothing of it is linked.
class NvtxRanges {
 public:
  // The tool is looked for at the first call.
  static const NvtxRanges& get();
  // Whether there is one that takes ranges; else push() and pop() do nothing.
  bool attached() const { return attached_; }
  // A range inside those of the same thread that are open.
  void push(const char* name) const;
  void pop() const;

 private:
  NvtxRanges();
  bool attached_ = false;
};

}  // namespace tessera
