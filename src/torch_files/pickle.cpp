#include "torch_files/pickle.h"

#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "torch_files/pickle_records.h"

namespace tessera {

std::string_view name_of(PickleKind kind) {
  switch (kind) {
    case PickleKind::kNone: return "None";
    case PickleKind::kBool: return "a truth value";
    case PickleKind::kInt:
    case PickleKind::kLong: return "an integer";
    case PickleKind::kFloat: return "a float";
    case PickleKind::kText: return "a text";
    case PickleKind::kBytes: return "bytes";
    case PickleKind::kGlobal: return "a class";
    case PickleKind::kTuple: return "a tuple";
    case PickleKind::kList: return "a list";
    case PickleKind::kDict: return "a dict";
    case PickleKind::kSet: return "a set";
    case PickleKind::kObject: return "an object";
    case PickleKind::kReference: return "a reference";
  }
  return "";
}

void Pickle::fail(std::string_view reason) const {
  throw UserError(cat("'", where_, "' cannot be read: ", reason));
}

void Pickle::fail_kind(PickleValue v, std::string_view what) const {
  fail(cat("there is ", name_of(v.kind()), " in place of ", what));
}

bool Pickle::truth(PickleValue v, std::string_view what) const {
  if (!v.is(PickleKind::kBool)) fail_kind(v, what);
  return v.small() != 0;
}

int64_t Pickle::integer(PickleValue v, std::string_view what) const {
  if (v.is(PickleKind::kInt)) return v.small();
  if (!v.is(PickleKind::kLong)) fail_kind(v, what);
  const auto& bytes = v.record<Characters>();
  int64_t value = 0;
  if (bytes.size != sizeof value) fail(cat(what, " has more than 64 bits"));
  std::memcpy(&value, bytes.data, sizeof value);
  return value;
}

double Pickle::number(PickleValue v, std::string_view what) const {
  if (v.is(PickleKind::kFloat)) return v.record<Float>().value;
  if (v.is(PickleKind::kBool)) return static_cast<double>(v.small());
  return static_cast<double>(integer(v, what));
}

std::string_view Pickle::text(PickleValue v, std::string_view what) const {
  if (!v.is(PickleKind::kText)) fail_kind(v, what);
  const auto& characters = v.record<Characters>();
  return {characters.data, characters.size};
}

std::string_view Pickle::global(PickleValue v, std::string_view what) const {
  if (!v.is(PickleKind::kGlobal)) fail_kind(v, what);
  return globals_[static_cast<size_t>(v.small())];
}

std::span<const PickleValue> Pickle::items(PickleValue v, std::string_view what) const {
  if (!v.is(PickleKind::kTuple) && !v.is(PickleKind::kList) && !v.is(PickleKind::kSet))
    fail_kind(v, what);
  const auto& sequence = v.record<Sequence>();
  return {sequence.items, sequence.size};
}

std::span<const PickleValue> Pickle::pairs(PickleValue v, std::string_view what) const {
  if (!v.is(PickleKind::kDict)) fail_kind(v, what);
  const auto& sequence = v.record<Sequence>();
  return {sequence.items, sequence.size};
}

std::optional<PickleValue> Pickle::find(PickleValue dict, std::string_view key) const {
  auto all = pairs(dict, "a dict");
  for (size_t i = all.size(); i > 0; i -= 2) {
    PickleValue k = all[i - 2];
    if (k.is(PickleKind::kText) && text(k, "") == key) return all[i - 1];
  }
  return {};
}

const PickleObject& Pickle::object(PickleValue v, std::string_view what) const {
  if (!v.is(PickleKind::kObject)) fail_kind(v, what);
  return v.record<Object>();
}

PickleValue Pickle::reference(PickleValue v, std::string_view what) const {
  if (!v.is(PickleKind::kReference)) fail_kind(v, what);
  return v.record<Sequence>().items[0];
}

}  // namespace tessera
