#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tessera {

// Writes a pickle of protocol 2, value by value, as Python's pickle module reads it. Every function
// emits one value, or makes one of those on top of the stack:
//   w.empty_dict(); w.mark(); w.name("lr"); w.number(0.1); w.set_items();
class PickleWriter {
 public:
  using Sink = std::function<void(std::string_view bytes)>;
  // The sink gets the bytes in order, some 64 KiB at a time, the last ones in finish().
  explicit PickleWriter(Sink sink);

  void none() { put('N'); }
  void truth(bool value) { put(value ? '\x88' : '\x89'); }
  void integer(int64_t value);
  void number(double value);
  void text(std::string_view value);
  // A text that comes again: written once, and referred to.
  void name(std::string_view value);
  void global(std::string_view module, std::string_view name);

  void mark() { put('('); }
  void tuple() { put('t'); }  // of all above the mark
  void empty_tuple() { put(')'); }
  void empty_list() { put(']'); }
  void append_items() { put('e'); }  // all above the mark, to the list below it
  void empty_dict() { put('}'); }
  void set_items() { put('u'); }  // pairs of key and value above the mark, in the dict below it

  void reduce() { put('R'); }         // callable, tuple of arguments -> what it returns
  void new_object() { put('\x81'); }  // class, tuple of arguments -> an instance
  void build() { put('b'); }          // instance, state -> the same
  void reference() { put('Q'); }      // what a persistent id stands for

  void finish();

 private:
  void put(char opcode);
  void put(std::string_view bytes);
  template <class T>
  void put_number(T value);
  bool recall(const std::string& key);
  void remember(const std::string& key);

  Sink sink_;
  std::string buffer_;
  std::unordered_map<std::string, uint32_t> known_;
};

}  // namespace tessera
