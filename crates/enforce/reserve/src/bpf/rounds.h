// Rounds and events: each CPU walks through the table as the dispatcher does (table.rs).
#pragma once

// Most events per timer. After a stall, the next timer takes the rest.
#define MAX_AT_ONCE 64

enum { LATENESS, OPENING, CLOSING };

// The buckets equal those of stats.rs. The verifier checks a function that is not static only once,
// not for each path to it.
__noinline int note(u32 at, u32 what, u64 ns)
{
	struct counters *n = bpf_map_lookup_elem(&counters, &at);
	u32 power = 0;
	u64 bucket = ns;

	if (!n)
		return 0;
	struct histogram *h = what == LATENESS ? &n->lateness : what == OPENING ? &n->opening : &n->closing;

	if (ns >= 8) {
		u64 rest = ns;

		for (u32 step = 32; step > 0; step >>= 1)
			if (rest >> step) {
				rest >>= step;
				power += step;
			}
		bucket = (power - 2) * 8 + ((ns >> (power - 3)) & 7);
	}
	if (bucket >= BUCKETS)
		bucket = BUCKETS - 1;
	h->buckets[bucket]++;
	h->sum_ns += ns;
	if (ns > h->max_ns)
		h->max_ns = ns;
	return 0;
}

// Returns how far the phase must move for a round that would begin at `at_ns`, in the shorter
// direction.
static __always_inline s64 deviation(const struct control *c, u64 at_ns)
{
	u64 cycle = c->cycle_ns ?: 1;
	u64 origin = *(const volatile u64 *)&c->origin_ns;
	u64 ahead = (origin % cycle + cycle - at_ns % cycle) % cycle;

	return ahead > cycle / 2 ? (s64)ahead - (s64)cycle : (s64)ahead;
}

// Begins the next round for all CPUs. Rounds that have passed are skipped. The phase moves by at
// most half the gap between the events of two rounds. Another table may take effect.
static __always_inline void begin_round(struct rounds *r, struct control *c, u64 gap_ns, u64 now_ns)
{
	u64 cycle = c->cycle_ns ?: 1;
	u64 nominal = r->base_ns[r->number & 3] + cycle;
	u64 late = now_ns > nominal ? (now_ns - nominal) / cycle : 0;
	s64 most = gap_ns / 2;
	s64 shift = deviation(c, nominal);
	s64 step = shift > most ? most : shift < -most ? -most : shift;
	u32 table = r->table[r->number & 3];
	u64 next = *(volatile u64 *)&c->next_table;

	if (next && next <= 2) {
		table = next - 1;
		c->next_table = 0;
		r->swaps++;
	}
	r->skipped += late;
	r->behind_ns = shift - step;
	r->number++;
	r->base_ns[r->number & 3] = nominal + late * cycle + step;
	r->table[r->number & 3] = table;
}

// Moves the CPU to the next round after it has taken all events.
static __always_inline void turn(struct cpu *cpu, u64 gap_ns, u64 now_ns)
{
	u32 zero = 0;
	struct rounds *r = bpf_map_lookup_elem(&rounds, &zero);
	struct control *c = the_control();

	if (!r || !c)
		return;
	bpf_spin_lock(&r->lock);
	if (r->number == cpu->round)
		begin_round(r, c, gap_ns, now_ns);
	// A CPU that has slept for long continues at the round of the others.
	cpu->round = r->number - cpu->round < 4 ? cpu->round + 1 : r->number;
	cpu->base_ns = r->base_ns[cpu->round & 3];
	cpu->table = r->table[cpu->round & 3];
	bpf_spin_unlock(&r->lock);
	cpu->next = 0;
}

__noinline int set_open(u32 at, u32 index, u32 open)
{
	struct server *server = server_of(index);
	u64 begin_ns = bpf_ktime_get_ns();

	if (!server || server->is_open == open)
		return 0;
	*(volatile u32 *)&server->is_open = open;
	struct cpu *cpu = cpu_of(at);
	bool works = (cpu && cpu->running == index + 1) || scx_bpf_dsq_nr_queued(server_queue(index)) > 0;

	if (!open) {
		server->ends++;
		server->working += works;
	}
	// A change without a thread is not recorded, as for a gate without threads, which the dispatcher
	// does not move.
	return works ? note(at, open ? OPENING : CLOSING, bpf_ktime_get_ns() - begin_ns) : 0;
}

// Sets each server to its state at the beginning of a round. A new table may begin with other open
// slots than those with which the last one ended.
static __always_inline void begin(u32 at, const struct table *t)
{
	struct order *order = bpf_map_lookup_elem(&orders, &at);

	for (u32 i = 0; order && i < MAX_OF_CPU && i < order->count; i++) {
		u32 server = order->server[i];

		if (server < MAX_SERVERS)
			set_open(at, server, t->begins_open[server]);
	}
}

// Takes the next event if it is due. Returns the instant of the following event, or 0 if more
// events may be due.
__noinline u64 take(u32 at, u64 now_ns)
{
	struct cpu *cpu = cpu_of(at);
	u32 key = ((cpu ? cpu->table : 0) & 1) * MAX_CPUS + at;
	struct table *t = bpf_map_lookup_elem(&tables, &key);

	if (!cpu || !t)
		return now_ns + 1000000000ULL;
	if (cpu->next == 0) {
		if (cpu->base_ns > now_ns)
			return cpu->base_ns;
		begin(at, t);
		cpu->next = 1;
		return 0;
	}
	u32 next = cpu->next - 1;

	if (next >= t->count || next >= MAX_EVENTS) {
		turn(cpu, t->gap_ns, now_ns);
		return 0;
	}
	struct event *event = &t->events[next];
	u64 due_ns = cpu->base_ns + event->offset_ns;

	if (due_ns > now_ns)
		return due_ns;
	set_open(at, event->server, event->is_open);
	cpu->next++;
	return 0;
}

static int on_timer(void *map, u32 *key, struct cpu *cpu)
{
	u32 at = *key;
	u64 now_ns = bpf_ktime_get_ns();
	u64 next_ns = 0;

	(void)map;
	for (u32 i = 0; i < MAX_AT_ONCE && !next_ns; i++)
		next_ns = take(at, now_ns);
	if (cpu->is_warm && cpu->due_ns && now_ns >= cpu->due_ns)
		note(at, LATENESS, now_ns - cpu->due_ns);
	cpu->is_warm = 1;
	cpu->due_ns = next_ns;
	// A thread whose slot is over leaves the CPU, and a thread whose slot begins gets it.
	scx_bpf_kick_cpu(at, cpu->running ? SCX_KICK_PREEMPT : 0);
	bpf_timer_start(&cpu->timer, next_ns, BPF_TIMER_ABSOLUTE | BPF_TIMER_PINNED);
	return 0;
}
