#include "remote/xml_elements.h"

#include <expat.h>

#include <memory>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr size_t kMaxElementDepth = 8, kMaxNameBytes = 64, kMaxTextBytes = 8192;

}  // namespace

void XmlElements::read(std::string_view xml) {
  const std::unique_ptr<XML_ParserStruct, decltype(&::XML_ParserFree)> parser(
      ::XML_ParserCreate(nullptr), ::XML_ParserFree);
  if (!parser) throw DeviceError("no memory for a parser of XML");
  parser_ = parser.get();
  ::XML_SetUserData(parser_, this);
  ::XML_SetElementHandler(
      parser_,
      [](void* self, const char* name, const char**) {
        static_cast<XmlElements*>(self)->call([name](XmlElements& e) { e.begin(name); });
      },
      [](void* self, const char*) {
        static_cast<XmlElements*>(self)->call([](XmlElements& e) { e.end(); });
      });
  ::XML_SetCharacterDataHandler(parser_, [](void* self, const char* text, int size) {
    std::string_view piece(text, static_cast<size_t>(size));
    static_cast<XmlElements*>(self)->call([piece](XmlElements& e) { e.add(piece); });
  });
  ::XML_SetStartDoctypeDeclHandler(
      parser_, [](void* self, const char*, const char*, const char*, int) {
        static_cast<XmlElements*>(self)->call(
            [](XmlElements& e) { e.fail("it declares a document type"); });
      });
  const auto status = ::XML_Parse(parser_, xml.data(), static_cast<int>(xml.size()), 1);
  if (error_) std::rethrow_exception(error_);
  if (status != XML_STATUS_OK)
    fail(cat("broken XML in line ", ::XML_GetCurrentLineNumber(parser_), ": ",
             ::XML_ErrorString(::XML_GetErrorCode(parser_))));
}

// No exception may pass through the parser.
template <class Action>
void XmlElements::call(Action action) {
  if (error_) return;
  try {
    action(*this);
  } catch (...) {
    error_ = std::current_exception();
    ::XML_StopParser(parser_, XML_FALSE);
  }
}

void XmlElements::begin(std::string_view name) {
  if (path_.size() >= kMaxElementDepth) fail("it is nested too deeply");
  path_.emplace_back(name.substr(0, kMaxNameBytes));
  text_.clear();
  begins(path_);
}

void XmlElements::add(std::string_view piece) {
  if (piece.size() > kMaxTextBytes - text_.size()) fail("a value is too long");
  text_.append(piece);
}

void XmlElements::end() {
  ended(path_, text_);
  path_.pop_back();
  text_.clear();
}

}  // namespace tessera
