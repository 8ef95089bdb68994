#pragma once
#include <string>
#include <string_view>

namespace tessera {

// Appends JSON. Bytes that are not UTF-8 are passed on as they are.
void append_json_string(std::string_view text, std::string& out);
// The shortest decimal that reads back as the same number; null for what JSON has no number for.
void append_json_number(double value, std::string& out);
void append_json_number(float value, std::string& out);

}  // namespace tessera
