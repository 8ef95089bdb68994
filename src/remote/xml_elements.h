#pragma once
#include <exception>
#include <string>
#include <string_view>
#include <vector>

struct XML_ParserStruct;

namespace tessera {

// The elements of an answer of S3, one after the other. An answer that declares a document type,
// from which entities could grow, is nested more than 8 deep or has a text of over 8 KiB is
// refused.
class XmlElements {
 public:
  virtual ~XmlElements() = default;

 protected:
  // Throws what the calls below throw, and by fail() where it is no XML.
  void read(std::string_view xml);

  // `path` is that of the element, its own name last; a name has its first 64 characters.
  virtual void begins(const std::vector<std::string>& path) = 0;
  // `text` is what was read since the last begin or end of any element.
  virtual void ended(const std::vector<std::string>& path, std::string_view text) = 0;
  [[noreturn]] virtual void fail(std::string_view why) const = 0;

 private:
  template <class Action>
  void call(Action action);
  void begin(std::string_view name);
  void add(std::string_view piece);
  void end();

  XML_ParserStruct* parser_ = nullptr;  // while it reads
  std::exception_ptr error_;
  std::vector<std::string> path_;
  std::string text_;
};

}  // namespace tessera
