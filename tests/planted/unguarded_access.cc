// Accesses a guarded member without its lock: Clang's thread-safety analysis must refuse to compile this.
#include "proto/base/mutex.h"

class Account {
 public:
  void Deposit(int amount) { balance_ += amount; }

 private:
  xpud::Mutex mutex_;
  int balance_ ABSL_GUARDED_BY(mutex_) = 0;
};

int main() {
  Account account;
  account.Deposit(1);
  return 0;
}
