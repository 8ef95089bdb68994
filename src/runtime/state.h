#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/dtype_of.h"
#include "ir/tensor_type.h"
#include "runtime/memory.h"

namespace tessera {

// What outlives a run: named slots of fixed type (weights, moments, gradients, counters), shared by
// the programs of a job. Where they lie is the affair of the backend that made the state.
//
// Reading and writing copy between a slot and the caller's memory, behind all runs that were
// started before. Elements are counted from the slot's first; another dtype than the slot's, or
// elements that it does not have, are an InternalError that names the slot. Several threads may
// read, and write elements that no other touches.
class State {
 public:
  State() = default;
  virtual ~State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Before it is declared: programs bring this slot near themselves, or update it where it is, so
  // that it belongs into the far tier. Where there is one memory only this says nothing.
  virtual void keep_far(const std::string& /*slot*/) {}
  // Adds a zeroed slot, or checks that the slot has exactly this type: InternalError naming both.
  void declare(const std::string& slot, const TensorType& type);
  bool contains(const std::string& slot) const { return types_.contains(slot); }
  const TensorType& type(const std::string& slot) const;
  std::vector<std::string> slots() const;
  int64_t bytes() const;

  template <class T>
  void read(const std::string& slot, int64_t first, std::span<T> to) const {
    require(slot, dtype_of<T>());
    read_bytes(slot, first * static_cast<int64_t>(sizeof(T)), std::as_writable_bytes(to));
  }
  template <class T>
  void write(const std::string& slot, int64_t first, std::span<const T> from) {
    require(slot, dtype_of<T>());
    write_bytes(slot, first * static_cast<int64_t>(sizeof(T)), std::as_bytes(from));
  }
  // f32 numbers into a slot of f32, or of bf16, to which they are rounded.
  void write_rounded(const std::string& slot, int64_t first, std::span<const float> from);
  // The numbers of a slot of f32 or of bf16.
  void read_as_f32(const std::string& slot, int64_t first, std::span<float> to) const;
  // The first element: of scalars the only one.
  template <class T>
  T scalar(const std::string& slot) const {
    T value;
    read(slot, 0, std::span(&value, 1));
    return value;
  }
  template <class T>
  void set_scalar(const std::string& slot, T value) {
    write(slot, 0, std::span<const T>(&value, 1));
  }
  // The same of slots of any dtype.
  void read_bytes(const std::string& slot, int64_t offset, std::span<std::byte> to) const;
  void write_bytes(const std::string& slot, int64_t offset, std::span<const std::byte> from);
  // Where the slot is in host memory, for those who want to read it without a copy and know that no
  // run writes to it; nullptr if it is elsewhere.
  virtual const std::byte* host_bytes(const std::string&) const { return nullptr; }

 protected:
  void require(const std::string& slot, DType dtype) const;

 private:
  void require_inside(const std::string& slot, int64_t offset, size_t bytes) const;
  virtual void allocate(const std::string& slot, int64_t bytes) = 0;
  virtual void copy_out(const std::string& slot, int64_t offset, std::span<std::byte> to) const = 0;
  virtual void copy_in(const std::string& slot, int64_t offset,
                       std::span<const std::byte> from) = 0;

  std::map<std::string, TensorType> types_;
};

// A state in host memory.
class HostState final : public State {
 public:
  std::byte* data(const std::string& slot) const;
  const std::byte* host_bytes(const std::string& slot) const override { return data(slot); }
  // The elements of a slot of dtype_of<T>(): InternalError for one of another dtype.
  template <class T>
  T* as(const std::string& slot) const {
    require(slot, dtype_of<T>());
    return reinterpret_cast<T*>(data(slot));
  }

 private:
  void allocate(const std::string& slot, int64_t bytes) override;
  void copy_out(const std::string& slot, int64_t offset, std::span<std::byte> to) const override;
  void copy_in(const std::string& slot, int64_t offset, std::span<const std::byte> from) override;

  std::map<std::string, HostBuffer> buffers_;
};

}  // namespace tessera
