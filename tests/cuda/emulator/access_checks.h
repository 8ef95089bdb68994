#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What a kernel touches, held against the memory there is, what was written, and what other threads
// do. Only kernels that were compiled with -fsanitize=thread say what they touch
// (thread_sanitizer_calls.cpp); without, `checking` stays false and all of this does nothing.
namespace tessera::simt {

extern bool checking;

enum class Access : uint8_t { kRead, kWrite, kAtomic };

// Memory that kernels may touch. Byte by byte it is known what has been written.
void add_memory(const void* begin, size_t bytes, const std::string& name, bool written);
void free_memory(const void* begin);  // touching it from now on is a finding
void forget_memory();                 // all of it
void set_written(const void* begin, size_t bytes);
void set_unwritten(const void* begin, size_t bytes);
void copy_written(const void* to, const void* from, size_t bytes);  // what was not stays unwritten
bool is_written(const void* begin, size_t bytes);
void guard_memory(const void* begin, size_t bytes, bool guarded);  // nobody may touch it

// What a launch touched, in pieces in no order.
struct Touched {
  const std::byte* begin;
  size_t bytes;
  bool writes;
};
std::vector<Touched> take_touched();

// Called by block_runner.cpp: a launch begins; a block begins; where its dynamic shared memory is.
void begin_launch(const std::byte* parameters, size_t parameter_bytes);
void begin_block(uint32_t number, const std::byte* dynamic_shared, size_t dynamic_bytes);

// The current thread touches memory; `place` is an instruction, or null.
void touch(const void* p, size_t bytes, Access access, const void* place);
// A copy to shared memory is under way: until it is waited for nobody may touch the bytes.
void begin_asynchronous(const void* shared, size_t bytes, const void* place);
void end_asynchronous(const void* shared, size_t bytes);

}  // namespace tessera::simt
