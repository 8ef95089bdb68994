#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

const utf8proc_uint8_t* bytes_at(std::string_view text, size_t position) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position;
}

struct Range {
  utf8proc_int32_t first, last;
};

// The marks that came after Unicode 9.0, and the vowel of the one composition that did.
constexpr Range kNewer[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},
    {0x0C3C, 0x0C3C},   {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}};

bool is_newer(utf8proc_int32_t code_point) {
  return std::ranges::any_of(kNewer, [&](const Range& range) {
    return code_point >= range.first && code_point <= range.last;
  });
}

// Whether form C may change the character, or join it to the one before. Everything else ends what
// came before it: text may be cut in front of it.
bool may_change(utf8proc_int32_t code_point) {
  if (code_point < 0x300) return false;
  // The vowels and final consonants of Hangul compose by rule, not by table.
  if (code_point >= 0x1160 && code_point <= 0x11FF) return true;
  const utf8proc_property_t* property = utf8proc_get_property(code_point);
  bool decomposes = property->decomp_seqindex != UINT16_MAX && property->decomp_type == 0;
  // In the second half of the table of compositions: it joins a character before it.
  bool joins = property->comb_index != UINT16_MAX && property->comb_index >= 0x8000;
  return (property->combining_class != 0 || decomposes || joins) && !is_newer(code_point);
}

// Not utf8proc_map: its ordering of marks takes quadratic time.
void append_normalized(std::string_view text, std::string& result) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  std::vector<utf8proc_int32_t> points;
  for (size_t i = 0; i < text.size();) {
    utf8proc_int32_t code_point = 0;
    i += static_cast<size_t>(utf8proc_iterate(
        bytes_at(text, i), static_cast<utf8proc_ssize_t>(text.size() - i), &code_point));
    utf8proc_int32_t parts[4];  // no canonical decomposition is longer
    int boundary = 0;
    utf8proc_ssize_t count = utf8proc_decompose_char(code_point, parts, 4, kOptions, &boundary);
    TESSERA_CHECK(count >= 0 && count <= 4, "a character that does not decompose");
    points.insert(points.end(), parts, parts + count);
  }
  auto mark_class = [](utf8proc_int32_t point) {
    return is_newer(point) ? 0 : utf8proc_get_property(point)->combining_class;
  };
  auto is_mark = [&](utf8proc_int32_t point) { return mark_class(point) != 0; };
  for (auto begin = points.begin(); begin != points.end();) {
    begin = std::find_if(begin, points.end(), is_mark);
    auto end = std::find_if_not(begin, points.end(), is_mark);
    std::stable_sort(begin, end, [&](utf8proc_int32_t a, utf8proc_int32_t b) {
      return mark_class(a) < mark_class(b);
    });
    begin = end;
  }
  utf8proc_ssize_t count = utf8proc_normalize_utf32(
      points.data(), static_cast<utf8proc_ssize_t>(points.size()), kOptions);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    utf8proc_uint8_t bytes[4];
    utf8proc_ssize_t size = utf8proc_encode_char(points[static_cast<size_t>(i)], bytes);
    result.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& buffer) {
  buffer.clear();
  size_t kept = 0;     // of `text`, so much is in the buffer
  size_t anchor = 0;   // the last place where text may be cut
  bool dirty = false;  // something behind the anchor may change
  auto flush = [&](size_t end) {
    if (!dirty) return;
    buffer.append(text, kept, anchor - kept);
    append_normalized(text.substr(anchor, end - anchor), buffer);
    kept = end;
    dirty = false;
  };
  for (size_t i = 0; i < text.size();) {
    auto byte = static_cast<unsigned char>(text[i]);
    utf8proc_int32_t code_point = byte;
    utf8proc_ssize_t size = 1;
    if (byte >= 0x80) {
      auto rest = static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size() - i, 4));
      size = utf8proc_iterate(bytes_at(text, i), rest, &code_point);
    }
    if (size > 0 && may_change(code_point)) {
      dirty = true;
      i += static_cast<size_t>(size);
      continue;
    }
    flush(i);
    // Nothing joins an invalid byte: the next place to cut is behind it.
    i += size > 0 ? static_cast<size_t>(size) : 1;
    anchor = size > 0 ? i - static_cast<size_t>(size) : i;
  }
  flush(text.size());
  if (kept == 0) return text;
  buffer.append(text, kept);
  return buffer;
}

}  // namespace tessera
