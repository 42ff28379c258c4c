import numpy as np, time
from daskclust.kernels.nearest import _observed_tiles as T
from daskclust.kernels.nearest.assign import accumulate
from daskclust.kernels.nearest.observed import accumulate_observed
rng=np.random.default_rng(0); n=65536; orig=T.tile_rows
ends=np.append(np.arange(4096,n,4096),n)
for p,k in ((20,10),(32,30),(50,10),(50,30),(50,100)):
    x=rng.normal(size=(n,p)).astype(np.float32); g=x.copy(); g[rng.random(x.shape)<.4]=np.nan; c=rng.normal(size=(k,p))
    best={}
    for _ in range(6):
        t=time.perf_counter(); accumulate(x,c,segments=ends); best['c']=min(best.get('c',9),time.perf_counter()-t)
        for size in (64,48,32,24,16,8):
            T.tile_rows=lambda q,b,s=size:min(s,orig(q,b))
            t=time.perf_counter(); accumulate_observed(g,c,segments=ends); best[size]=min(best.get(size,9),time.perf_counter()-t)
    print(p,k,{a:round(b*1e9/n,1) for a,b in best.items()},{a:round(b/best['c'],2) for a,b in best.items()})
