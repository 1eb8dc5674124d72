// Numbers with a point, whatever locale the program has chosen (locale.setlocale(LC_ALL, "") where 1.5 is written 1,5).
#pragma once

#include <locale.h>

namespace ipexrun::preload {

/// While it lives this thread's printf writes what JSON reads.
class PlainNumbers {
 public:
  PlainNumbers() : before_(plain() == nullptr ? nullptr : ::uselocale(plain())) {}
  ~PlainNumbers() {
    if (before_ != nullptr) ::uselocale(before_);
  }
  PlainNumbers(const PlainNumbers&) = delete;
  PlainNumbers& operator=(const PlainNumbers&) = delete;

 private:
  static ::locale_t plain() {
    static const ::locale_t made = ::newlocale(LC_ALL_MASK, "C", nullptr);
    return made;
  }

  ::locale_t before_;
};

}  // namespace ipexrun::preload
